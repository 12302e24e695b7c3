"""Hold the embedded broker to the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contract.broker_contract import BrokerContract

if TYPE_CHECKING:
    from pathlib import Path


class TestEmbedded(BrokerContract):
    @pytest.fixture
    def broker_url(self, tmp_path: Path) -> str:
        return f"embedded:{tmp_path / 'farm'}"
