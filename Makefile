# SPDX-License-Identifier: MIT OR Apache-2.0
# Every target but programs and install sets up what it needs; run it on a fresh machine.

LAB := lab/lab

PREFIX := /usr/local
BUILT := $(or $(CARGO_TARGET_DIR),target)/release
# The commands to install; two have a library to preload.
KNOWN := brug pdio nocopy-record
PARTS := $(KNOWN)
ifneq ($(if $(strip $(PARTS)),$(filter-out $(KNOWN),$(PARTS)),none),)
$(error PARTS="$(PARTS)": give some of $(KNOWN))
endif
ifeq ($(filter /%,$(firstword $(PREFIX))),)
$(error PREFIX="$(PREFIX)": give an absolute path)
endif
LIBRARIES := brug pdio
CRATES := $(foreach part,$(PARTS),$(if $(filter $(part),$(LIBRARIES)),$(part)-cli $(part)-preload,$(part)))
PLACED := $(PARTS:%=bin/%) $(patsubst %,lib/lib%.so,$(filter $(LIBRARIES),$(PARTS)))

.PHONY: help demo paper report check test soak bench-gcma bench-brug bench-pdio record shell site programs install uninstall debs \
	clean distclean

help: ## say what there is (the default)
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "Variables: KERNEL_TREE=DIR[:DIR] (clean trees of Linux 6.12 or 7.3 instead of Debian's)"
	@echo "           NOCOPY_CACHE=DIR (sources, builds and images; ~/.cache/nocopy)"
	@echo "           PREFIX=DIR, DESTDIR=DIR, PARTS=\"$(PARTS)\" (make install and uninstall; /usr/local)"
	@echo "           MIN=N (minutes of make soak), BLOGBENCH=FILE (the load of make paper)"
	@echo "           MIMALLOC_BENCH=DIR (a copy of mimalloc-bench, for make bench-brug)"
	@echo "           CONFIG=FILE (a configuration, for make debs)"

demo: ## compare reservation, CMA and GCMA under load; writes out/demo/index.html
	@$(LAB) demo

paper: ## run the GCMA paper's evaluation again; writes out/paper/ and docs/results/paper.md
	@$(LAB) paper

report: ## draw every figure of every experiment into one page, out/report/index.html
	@$(LAB) report

check: ## lint, unit tests, and KUnit in User Mode Linux: before every commit
	@$(LAB) check

test: ## run the checks (lab/lab test --list); some only run if asked for
	@$(LAB) test

site: ## make a web site of README, docs, results and figures; writes out/site/
	@$(LAB) site

soak: ## everything at once, at random, for MIN minutes (10)
	@$(LAB) soak --minutes $(or $(MIN),10)

bench-gcma: ## measure all configurations in depth; writes out/bench-gcma/
	@$(LAB) bench-gcma

bench-brug: ## compare brug with other allocators; writes out/bench-brug/
	@$(LAB) bench-brug

bench-pdio: ## measure pdio here and on a slow board; writes out/bench-pdio/
	@$(LAB) bench-pdio

record: ## compare nocopy-record with other recorders on a slow board; writes out/record/
	@$(LAB) record

shell: ## boot a board with GCMA and a shell on this terminal
	@$(LAB) shell

programs: ## build the commands and the libraries to preload
	@cargo --version 2>/dev/null | \
		awk '{ split($$2, v, "."); new = v[1] > 1 || v[2] >= 91 } END { exit !new }' && \
		command -v cc >/dev/null || \
		{ echo "needs cc (apt-get install build-essential) and Rust 1.91 or newer (https://rustup.rs)" >&2; exit 1; }
	cargo build --release --locked $(patsubst %,-p %,$(filter-out brug-preload,$(CRATES)))
	$(if $(filter brug-preload,$(CRATES)),cargo rustc --release --locked -p brug-preload -- -C panic=abort)

# Builds nothing: it runs as root, who may have no cargo. Everybody may read what it makes, also if root's other
# files are nobody's business (umask 077).
install: ## put what make programs has built below PREFIX
	@for file in $(notdir $(PLACED)); do \
		[ -f "$(BUILT)/$$file" ] || { echo "no $(BUILT)/$$file; first run: make programs" >&2; exit 1; }; \
	done
	@set -e; for file in $(PLACED); do \
		install -D -m 755 "$(BUILT)/$${file##*/}" "$(DESTDIR)$(PREFIX)/$$file"; \
	done
	@set -e; umask 022; for part in $(PARTS); do "$(BUILT)/$$part" pages "$(DESTDIR)$(PREFIX)/share"; done
	@set -e; umask 022; for part in $(filter $(LIBRARIES),$(PARTS)); do \
		install -d "$(DESTDIR)$(PREFIX)/lib/pkgconfig"; \
		printf '%s\n' "libdir=$(PREFIX)/lib" "Name: $$part" "Description: lib$$part.so of nocopy" \
			"Version: $$("$(BUILT)/$$part" --version | sed 's/.* //')" "Libs: -L\"\$${libdir}\" -l$$part" \
			>"$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$part.pc"; \
	done
	@echo "in $(DESTDIR)$(PREFIX): $(PLACED), manual pages, completions"

uninstall: ## remove what make install has put there
	@[ -d "$(DESTDIR)$(PREFIX)" ] || \
		{ echo "no $(DESTDIR)$(PREFIX); give the PREFIX and DESTDIR of make install" >&2; exit 1; }
	@failed=0; for part in $(PARTS); do (cd "$(DESTDIR)$(PREFIX)" && rm -f bin/$$part lib/lib$$part.so \
		lib/pkgconfig/$$part.pc share/man/man1/$$part.1 share/man/man1/$$part-*.1 \
		share/bash-completion/completions/$$part.bash share/zsh/site-functions/_$$part \
		share/fish/vendor_completions.d/$$part.fish) || failed=1; done; exit $$failed

debs: ## make Debian packages of WHAT of brug, pdio, nocopy-record and kernel (all); writes out/debs/
	@$(LAB) debs $(if $(CONFIG),--config "$(CONFIG)") $(WHAT)

clean: ## remove out/ and other products in this directory; the cache stays
	rm -rf out target crates/brug-bench/target
	find lab -name __pycache__ -type d -prune -exec rm -rf {} +

# A directory that somebody else's files were in before is not removed. Not $(MAKE), for which make runs the
# recipe under -n as well.
distclean: ## remove the cache as well
	@cache="$${NOCOPY_CACHE:-$${XDG_CACHE_HOME:-$${HOME:?is not set; give NOCOPY_CACHE}/.cache}/nocopy}"; \
	[ -z "$$NOCOPY_CACHE" ] || [ ! -d "$$cache" ] || [ -f "$$cache/CACHEDIR.TAG" ] || \
		{ echo "$$cache has no CACHEDIR.TAG of the lab and may have files of others; remove it yourself" >&2; exit 1; }; \
	make --no-print-directory clean && rm -rf "$$cache"
