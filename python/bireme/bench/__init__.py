"""The benchmark behind `bireme bench --python`: `suite.py`, one script that runs on Bireme and on Ray unchanged."""
