"""Teams: workers and their slots, which outlive the iterators that they work for, one after another."""

from __future__ import annotations

import os
import weakref
from collections import deque
from dataclasses import dataclass, field

from rawpack.batching.crew import Crew, Pending
from rawpack.batching.iterator import Begun
from rawpack.batching.slots import SlotRing


@dataclass(frozen=True)
class Team:
    """Workers and slots, and what they have in hand from the iterator before."""

    crew: Crew | None
    """None where all is done in this process."""
    ring: SlotRing
    left: tuple[Pending, ...] = ()
    """Batches that are still being made, and that nobody wants."""
    epoch: int = 0
    begun: Begun = field(default_factory=deque)
    """The first batches of `epoch`, in the making."""

    def close(self) -> None:
        """End the workers, and let go of the slots."""
        if self.crew is not None:
            self.crew.close()
        self.ring.close()


class Teams:
    """Those of one `Batches` that no iterator has. They end with this object, in the process that made it."""

    def __init__(self) -> None:
        self._idle: list[Team] = []
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle, self._process)

    def hire(self, epoch: int, position: int) -> Team | None:
        """An idle team for an iterator of `epoch` from `position` on; None where there is none. `begun` holds the first
        batches of just these that it has in the making; what else it had in hand is finished first."""
        while True:
            try:
                # The one that has begun just this, or the last.
                fits = [k for k, team in enumerate(self._idle) if team.begun and (team.epoch, 0) == (epoch, position)]
                team = self._idle.pop(fits[-1] if fits else -1)
            except IndexError:
                return None
            if team.begun and (team.epoch, 0) == (epoch, position):
                return team
            if team.crew is None or team.crew.drain():
                for pending in (*team.left, *(pending for _, pending in team.begun)):
                    team.ring.put_back(pending.slot)
                return Team(team.crew, team.ring)
            self.dismiss(team)

    def give_back(self, team: Team) -> None:
        """An iterator is done with a team."""
        self._idle.append(team)

    def dismiss(self, team: Team) -> None:
        """A team that something went wrong with: nobody may use it again."""
        _close([team], self._process)


def _close(teams: list[Team], process: int) -> None:
    """In the process that started them."""
    if os.getpid() == process:
        for team in teams:
            team.close()
        teams.clear()
