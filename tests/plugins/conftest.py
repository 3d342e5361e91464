import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "realdata: reads real chain data from the folder BRUIT_DATA")
