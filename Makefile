# SPDX-License-Identifier: MIT OR Apache-2.0
# Every target sets up what it needs; run it on a fresh machine.

LAB := lab/lab

.PHONY: help demo paper report test soak bench-gcma bench-brug bench-pdio shell debs clean distclean

help: ## say what there is (the default)
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "Variables: KERNEL_TREE=DIR (a clean 6.12.y or 6.1.y tree instead of Debian's),"
	@echo "           NOCOPY_CACHE=DIR (sources, builds and images; ~/.cache/nocopy)"
	@echo "           MIN=N (minutes of make soak), BLOGBENCH=FILE (the load of make paper)"

demo: ## compare reservation, CMA and GCMA under load; writes out/demo/index.html
	@$(LAB) demo

paper: ## run the GCMA paper's evaluation again; writes out/paper/ and docs/results/paper.md
	@$(LAB) paper

report: ## draw every figure of every experiment into one page, out/report/index.html
	@$(LAB) report

test: ## run every check that this machine can run
	@$(LAB) test

soak: ## everything at once, at random, for MIN minutes (10)
	@$(LAB) soak --minutes $(or $(MIN),10)

bench-gcma: ## measure all configurations in depth; writes out/bench-gcma/
	@$(LAB) bench-gcma

bench-brug: ## compare brug with other allocators; writes out/bench-brug/
	@$(LAB) bench-brug

bench-pdio: ## measure pdio here and on a slow board; writes out/bench-pdio/
	@$(LAB) bench-pdio

shell: ## boot a board with GCMA and a shell on this terminal
	@$(LAB) shell

debs: ## make Debian packages of the kernel with GCMA; writes out/debs/
	@$(LAB) debs $(if $(CONFIG),--config $(CONFIG))

clean: ## remove out/ and other products in this directory; the cache stays
	rm -rf out target crates/brug-bench/target lab/.mypy_cache lab/.ruff_cache lab/.pytest_cache
	find lab -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the cache as well
	rm -rf "$${NOCOPY_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/nocopy}"
