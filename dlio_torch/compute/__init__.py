"""What stands for the model: step times, and waits that leave the loader alone.

Import the modules themselves; this file loads nothing, so that no caller pays for torch.
"""
