"""`rawpack view`: a page on this machine that shows stores, and what training sees of them. It only reads.

server.py    who may ask, and what every answer has; a thread for each connection
answers.py   path of a request -> what is answered
looked_at.py one store or split: what it holds, its rows in an order, a sample, clips
training.py  batch k of an epoch, as a training loop gets it
background.py  the page while a notebook goes on
drawn.py     arrays as PNG and JPEG; two images, and how far they are from each other
page/        the page itself: HTML, style and script
"""
