# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lab: build the kernels, boot the boards, run the experiments, draw the figures.

Lower modules never import higher ones:

    cli  checks  experiments/          what a user asks for
    report                             figures and pages, from JSON alone
    run                                one boot: job in, results and console out
    kernel  initramfs  board           what a boot is made of
    child  paths  progress             processes, places, patience
"""
