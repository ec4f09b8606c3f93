# SPDX-License-Identifier: MIT OR Apache-2.0
"""`lab test`: everything that can be checked on this machine.

Two kinds. A host check is a function that raises LabError when something is wrong and Skip when
it cannot run here; decorate it with @check, in `host` if it is about the lab or a crate, in
`source` if it is about the kernel before it is booted (`hooks` is one that boots it). A guest check
is a list of boots and a function that judges their outcomes; put it in GUEST_CHECKS in `guest`,
and the function in `judges`.
Host checks run in two lanes, one after the other in each, and boots beside them. Add one by
writing it: there is no other list.
"""
