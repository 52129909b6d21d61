"""The class: a JupyterHub to try out on one machine, and a load test that tells what a class needs.

python -m book.classroom.hub     the hub, on this machine only
python -m book.classroom.load    simulated students, figures into tests/bench/results/class.json
python -m book.classroom.links   nbgitpuller and Binder links for a chapter
"""
