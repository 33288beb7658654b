"""Models of random weights, lowered once."""

from __future__ import annotations

import pytest
from random_models import Lowered


@pytest.fixture(scope="session")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    return Lowered(tmp_path_factory.mktemp("lowered"))
