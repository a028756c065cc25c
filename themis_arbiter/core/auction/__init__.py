"""The partial-allocation auction: who is offered, who wins, what is withheld, where the rest goes."""
