"""What is missing or wrong on a computer or a board, and how to mend it. Looks only; changes nothing."""

from .examine import Examination, examine
from .machine import Machine
from .model import Check

__all__ = ["Check", "Examination", "Machine", "examine"]
