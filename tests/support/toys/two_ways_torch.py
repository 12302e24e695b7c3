"""What runs on CUDA in the place of the methods in two_ways.py."""

import os

import torch


def where(points, device):
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    return [["torch", device, visible, torch.cuda.device_count()] for _ in points]


def tenfold(points):
    return points * 10


def unlucky(points, how="nothing"):
    if how == "memory":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if how == "assert":
        torch.fall_over()
    if how == "swallowed":
        try:
            torch.fall_over()
        except RuntimeError:
            raise ValueError("no good index") from None
    if how == "mistake":
        raise ValueError("shapes do not fit")
    return [os.getpid() for _ in points]
