"""`python -m broker.cli`."""

from broker.cli import main

main()
