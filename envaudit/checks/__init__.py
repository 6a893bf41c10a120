"""Does this device compute the right numbers? Operations whose right answer is known to the bit.

Runs in the audited environment's own torch, which is imported inside functions alone: to import
this package costs the standard library.
"""
