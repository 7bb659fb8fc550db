"""What the store does, once more: dictionaries and lists, no SQL, no code of the store's.

Written from the rules of the store's behaviour, to be run side by side with it.
"""
