"""Measurements of stores on this machine, and the recommendation of one.

`bench.py` measures stores that exist. `plan.py` has a sample of a source packed into candidates (`candidates.py`,
`trial.py`), which are read back and compared (`loss.py`), and recommends one (`recommend.py`). `measure.py` measures
stores in turn, and knows nothing of plans.
"""
