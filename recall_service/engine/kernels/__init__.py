"""Triton kernels, one file each, and beside each the plain torch that it must equal. Only a GPU engine imports this."""
