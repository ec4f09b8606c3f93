# SPDX-License-Identifier: MIT OR Apache-2.0
"""The lab: build the kernels, boot the boards, run the experiments, draw the figures.

Lower modules never import higher ones:

    cli                                     what a user asks for
    checks/  website  packages              what is tested; the site; Debian packages of programs
    experiments/                            what is measured, judged and drawn
    report  samples  traces  series         figures from JSON; results; recorded loads; mails
    run                                     one boot: job in, results and console out
    kernel  initramfs  board  crates        what a boot is made of
    trees  debian  jobs  venv               sources, packages, scripts, Python environments
    arch  units  names                      small vocabularies
    child  paths  progress                  processes, places, patience
"""
