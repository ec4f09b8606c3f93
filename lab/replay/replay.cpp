// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * replay - what several stores would have made of the same accesses
 *
 * Two memories in a row, page by page: RAM (for each cgroup an inactive and an active list, and
 * shadow entries with refault distances, as Linux has them) and behind it an area, which is offered
 * what RAM evicts. read() is served from the area where the page is; a page that is mapped or
 * swapped in moves to RAM. Swap is offered and wanted as it was recorded, its RAM is not modelled.
 *
 *   --trace FILE       records, a line each, as lab/guest/pagetrace.c writes them
 *   --load NAME        or a sequence that is made here; --loads names them
 *   --frames N         of the area (16384)
 *   --ram C=N          pages of files that cgroup C can hold
 *   --by file|cgroup   whose accesses are told apart (cgroup)
 *   --owned FIRST:NR   the owner has these frames all the time
 *   --take FIRST:NR    and these for a while in the second half
 *   --store NAME:WORDS one more store, see shape(); --only-given leaves out the others
 *
 *   --from N           count from this thousandth of the records on (500)
 *
 * Prints a JSON line for each store.
 */
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = uint64_t;

[[noreturn]] static void die(const std::string &what)
{
	fprintf(stderr, "replay: %s\n", what.c_str());
	exit(2);
}

static u64 mix(u64 x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}

struct Random {
	u64 state = 88172645463325252ULL;
	u64 next()
	{
		state ^= state << 13;
		state ^= state >> 7;
		return state ^= state << 17;
	}
	u32 below(u32 n) { return (u32)((next() >> 32) * n >> 32); }
};

enum Kind : u8 {
	READ = 'R',	/* may be served where the page is */
	MAP = 'M',	/* a fault: the page moves to RAM */
	WRITE = 'W',	/* a copy is worth nothing any more */
	DELETED = 'D',	/* the whole file */
	SWAP_OUT = 'O', /* offered as recorded */
	SWAP_IN = 'I',
	ALLOC = 'A', /* the owner takes frames */
	RELEASE = 'F',
};

struct record {
	u32 file, first, nr; /* pages, or frames */
	u8 cgroup;
	Kind kind;
	bool swap() const { return kind == SWAP_OUT || kind == SWAP_IN; }
	bool frames() const { return kind == ALLOC || kind == RELEASE; }
};

/* A key as a store sees it. Pages of swap belong to no file. */
struct Key {
	u32 page; /* a number of its own for each page */
	u32 space, offset;
	bool swap;
};

static const u32 NONE = ~0u;

/* ------------------------------------------------------------------------------ stores */

struct Store {
	u32 frames;
	std::vector<u32> frame_of; /* by page, or NONE */
	std::vector<Key> key;	   /* by frame */
	std::vector<u8> live, owned;
	u64 copies = 0;
	bool in_sequence = false; /* is what is read now */

	Store(u32 n, u32 pages) : frames(n), frame_of(pages, NONE), key(n), live(n), owned(n) {}
	virtual ~Store() {}
	bool has(const Key &k) const { return frame_of[k.page] != NONE; }
	virtual void used(const Key &, u32, bool) {}
	virtual void freed(u32) {}
	virtual u32 place(const Key &k, bool ws) = 0; /* a frame that holds nothing, or NONE */

	void forget(u32 f)
	{
		if (live[f]) {
			frame_of[key[f].page] = NONE;
			live[f] = 0;
		}
	}
	void read(const Key &k) { used(k, frame_of[k.page], true); }
	void load(const Key &k)
	{
		u32 f = frame_of[k.page];
		used(k, f, false);
		forget(f);
		freed(f);
	}
	void invalidate(const Key &k)
	{
		u32 f = frame_of[k.page];
		if (f != NONE) {
			forget(f);
			freed(f);
		}
	}
	bool offer(const Key &k, bool ws)
	{
		invalidate(k);
		u32 f = place(k, ws);
		if (f == NONE)
			return false;
		key[f] = k;
		live[f] = 1;
		frame_of[k.page] = f;
		copies++;
		return true;
	}
	void take(u32 first, u32 nr)
	{
		for (u32 f = first; f < first + nr; f++) {
			forget(f);
			owned[f] = 1;
		}
	}
	void give(u32 first, u32 nr)
	{
		for (u32 f = first; f < first + nr; f++) {
			owned[f] = 0;
			freed(f);
		}
	}
};

struct Nothing : Store {
	using Store::Store;
	u32 place(const Key &, bool) override { return NONE; }
};

/* What mm/gcma did first: a cursor, young frames passed over, every page or few. */
struct Fifo : Store {
	bool adaptive, wsonly;
	u32 words, cursor, word = 0, few = 0, begun = 0, clock = 0;
	u64 mask = 0, near = 0, evicted = 0, near0 = 0, evicted0 = 0;
	bool picky = false;
	u32 cpu_few = 0, stamp = 0;
	std::vector<u8> avail;
	std::vector<u32> stamps;
	std::vector<u8> was_read;

	Fifo(u32 n, u32 pages, bool adapt, bool only)
		: Store(n, pages), adaptive(adapt), wsonly(only), words(n / 64),
		  cursor(0x7fffffffu / words * words), avail(words, 1), stamps(n), was_read(n)
	{
	}
	void freed(u32 f) override { avail[f / 64] = 1; }
	bool young(u32 f, u32 now) const { return (int32_t)(now - stamps[f]) < (int32_t)(frames / 2); }
	void used(const Key &, u32 f, bool stays) override
	{
		if (!was_read[f] && clock - stamps[f] < frames)
			near++;
		if (stays) {
			stamps[f] = clock;
			was_read[f] = 1;
		}
	}
	void reconsider(u32 now)
	{
		int32_t offered = (int32_t)(now - begun);
		if (offered < (int32_t)(few ? frames / 8 : frames))
			return;
		begun = now;
		u64 u = near - near0;
		if (few && (u << few) > (u64)offered / 8)
			few = 0;
		else if (!few && u < (evicted - evicted0) / 16)
			few = 4;
		near0 = near;
		evicted0 = evicted;
	}
	u64 usable(u32 w) const
	{
		u64 m = 0;
		for (u32 i = 0; i < 64; i++)
			m |= (u64)!owned[w * 64 + i] << i;
		return m;
	}
	u64 lives(u32 w) const
	{
		u64 m = 0;
		for (u32 i = 0; i < 64; i++)
			m |= (u64)live[w * 64 + i] << i;
		return m;
	}
	bool refill()
	{
		u64 m = 0, young_mask = 0;
		u32 w = 0, young_word = 0;

		picky = true;
		for (u32 i = 0; i < 64; i++) {
			auto it = std::find(avail.rbegin(), avail.rend(), 1);
			if (it == avail.rend())
				break;
			w = words - 1 - (u32)(it - avail.rbegin());
			avail[w] = 0;
			m = usable(w) & ~lives(w);
			if (m)
				goto found;
		}
		for (u32 i = 0; i < 64; i++) {
			w = --cursor % words;
			m = usable(w);
			if (!m)
				continue;
			if (i >= 8) {
				picky = false;
				goto found;
			}
			if (!young_mask) {
				young_mask = m;
				young_word = w;
			}
			for (u32 b = 0; b < 64; b++)
				if ((m >> b & 1) && live[w * 64 + b] && young(w * 64 + b, clock))
					m &= ~(1ULL << b);
			if (m)
				goto found;
		}
		if (!young_mask)
			return false;
		m = young_mask;
		w = young_word;
		picky = false;
found:
		word = w;
		mask = m;
		cpu_few = adaptive ? few : 0;
		stamp = clock;
		clock += (u32)__builtin_popcountll(m) << cpu_few;
		if (adaptive)
			reconsider(stamp);
		return true;
	}
	u32 place(const Key &k, bool ws) override
	{
		if (wsonly && !ws)
			return NONE;
		if (adaptive && few && mix(k.space * 1000003ULL + (k.offset >> 6)) % 16 &&
		    std::find(avail.begin(), avail.end(), 1) == avail.end())
			return NONE;
		for (u32 tries = 0; tries < 128; tries++) {
			if (!mask && !refill())
				break;
			u32 b = 63 - (u32)__builtin_clzll(mask);
			mask &= ~(1ULL << b);
			u32 f = word * 64 + b;
			if (owned[f] || (picky && live[f] && young(f, stamp)))
				continue;
			evicted += live[f];
			forget(f);
			stamps[f] = stamp;
			was_read[f] = 0;
			stamp += 1u << cpu_few;
			return f;
		}
		return NONE;
	}
};

/* What a set-associative store is made of. */
struct Shape {
	u32 choices = 1, ways = 32;
	u32 guests = 0; /* the second choice is for what finds no free frame in the first */
	u32 rrip = 1;	 /* or first in, first out in the set */
	u32 duel = 1;	 /* or everything is kept */
	u32 leaders = 64; /* of so many pieces one always keeps all, and one few */
	u32 piece = 4;	 /* pages that lie in neighbouring sets, as a power of two */
	u32 few = 16;	 /* of so many pieces one is kept */
	u32 random = 0;	 /* which ones, page by page, or always the same */
	u32 round = 512; /* pages offered to a leader until the policy is chosen again */
	u32 pays = 8;	 /* copies that one read of the disk is worth */
	u32 near = 2;	 /* of a page of the working set when it enters */
	u32 far = 2, sampled = 3;
	u32 anyread = 0; /* do reads in sequence make frames near as well */
	u32 wsage = 0;	 /* may the working set make frames older where few pages are kept */
};

struct Sets : Store {
	Shape s;
	u32 sets;
	std::vector<u8> rrpv, hand;
	bool keeps_all = true;
	u64 offered[3] = {}, found[3] = {};
	Random rnd;

	Sets(u32 n, u32 pages, const Shape &shape)
		: Store(n, pages), s(shape), sets(n / s.ways), rrpv(n, 3), hand(sets)
	{
	}
	u64 piece(const Key &k) const
	{
		return mix((u64)k.space << 33 ^ (u64)k.swap << 32 ^ k.offset >> s.piece);
	}
	/* 1: keeps all, 2: keeps few, 0: follows */
	u32 leader(const Key &k) const
	{
		u32 l = (u32)(piece(k) >> 40) % s.leaders;
		return s.duel && l < 2 ? l + 1 : 0;
	}
	/* The leaders have sets of their own. */
	u32 set(const Key &k, u32 choice) const
	{
		u32 own = s.duel ? std::max(sets / s.leaders, 1u) : 0, l = leader(k);
		u32 first = l ? (l - 1) * own : 2 * own, n = l ? own : sets - 2 * own;
		u64 x = mix(piece(k) + choice * 0x5851f42d4c957f2dULL) >> 16 << s.piece;
		return first + (u32)((x + (k.offset & ((1u << s.piece) - 1))) % n);
	}
	void count_offered(const Key &k)
	{
		u32 l = leader(k);
		if (!l || ++offered[l] != s.round)
			return;
		keeps_all = (found[1] * offered[2] - (double)found[2] * offered[1]) * s.pays >
			    (double)offered[1] * offered[2];
		for (l = 1; l < 3; l++) {
			offered[l] -= offered[l] / 2;
			found[l] -= found[l] / 2;
		}
	}
	void used(const Key &k, u32 f, bool stays) override
	{
		if (stays) {
			if (s.anyread || !in_sequence)
				rrpv[f] = 0;
			count_offered(k);
		}
		found[leader(k)]++;
	}
	u32 victim(const u32 *at, bool may_age)
	{
		u32 choices = s.guests ? 1 : s.choices;
		u32 first = choices < 2 ? 0 : s.random ? (u32)(rnd.next() >> 33) & 1 : hand[at[0]] & 1;
		for (u32 age = 0; age < 4; age++) {
			for (u32 c = 0; c < choices; c++) {
				u32 q = at[(first + c) % choices];
				for (u32 j = 0; j < s.ways; j++) {
					u32 w = (hand[q] + j) % s.ways, f = w * sets + q;
					if (!owned[f] && (!s.rrip || rrpv[f] >= 3)) {
						hand[q] = (u8)((w + 1) % s.ways);
						return f;
					}
				}
			}
			if (!may_age)
				break;
			for (u32 c = 0; c < choices; c++)
				for (u32 w = 0; w < s.ways && (!c || at[1] != at[0]); w++) {
					u8 &v = rrpv[w * sets + at[c]];
					v = (u8)(v + (v < 3));
				}
		}
		return NONE;
	}
	u32 place(const Key &k, bool ws) override
	{
		u32 at[2] = {set(k, 0), set(k, s.choices - 1)}, nr[2] = {}, free[2] = {NONE, NONE};
		for (u32 c = 0; c < s.choices; c++)
			for (u32 w = 0; w < s.ways; w++) {
				u32 f = w * sets + at[c];
				if (!owned[f] && !live[f]) {
					nr[c]++;
					free[c] = f;
				}
			}
		u32 f = free[s.guests ? free[0] == NONE : nr[1] > nr[0]], l = leader(k);
		bool few = s.duel && (l ? l == 2 : !keeps_all);
		count_offered(k);
		if (few && !ws && f == NONE && ((s.random ? rnd.next() : piece(k)) >> 20) % s.few)
			return NONE;
		if (f == NONE)
			f = victim(at, !few || !ws || s.wsage);
		if (f == NONE)
			return NONE;
		forget(f);
		rrpv[f] = (u8)(ws ? s.near : few ? s.sampled : s.far);
		return f;
	}
};

/* -------------------------------------------------------------------------------- RAM */

struct Page {
	u32 next = NONE, prev = NONE;
	u32 age = 0; /* of the cgroup when it was evicted, plus one */
	u8 where = 0; /* 1: inactive, 2: active */
	u8 cgroup = 0;
	bool referenced = false, workingset = false, shadow_workingset = false;
};

struct List {
	u32 head = NONE, tail = NONE, nr = 0;
};

struct Counts {
	u64 accesses = 0, ram = 0, area = 0, disk = 0, requests = 0, offers = 0, copies = 0;
};

/* A disk is asked for so many pages at a time, as by readahead. */
static const u32 REQUEST = 32;
static const u32 WHO_MAX = 8;

struct System {
	std::vector<Page> page;
	const std::vector<Key> &keys;
	Store &store;
	struct Cgroup {
		u32 room = 0, age = 0;
		List list[3];
	};
	Cgroup cgroup[WHO_MAX];
	Counts counts[WHO_MAX];
	u32 last_miss[WHO_MAX];
	std::map<u32, u32> last_page; /* of each file, that was read */
	bool by_file;

	System(const std::vector<Key> &k, Store &s, const std::vector<u32> &rooms, bool files)
		: page(k.size()), keys(k), store(s), by_file(files)
	{
		for (u32 i = 0; i < WHO_MAX; i++) {
			cgroup[i].room = i < rooms.size() ? rooms[i] : 0;
			last_miss[i] = NONE;
		}
	}
	u32 who(u32 p, u8 group) const
	{
		return std::min(by_file ? keys[p].space : group, WHO_MAX - 1);
	}
	void unlink(Cgroup &g, u32 p)
	{
		Page &e = page[p];
		List &l = g.list[e.where];
		(e.prev == NONE ? l.head : page[e.prev].next) = e.next;
		(e.next == NONE ? l.tail : page[e.next].prev) = e.prev;
		l.nr--;
		e.where = 0;
	}
	void append(Cgroup &g, u32 p, u8 where)
	{
		Page &e = page[p];
		List &l = g.list[where];
		e.where = where;
		e.prev = l.tail;
		e.next = NONE;
		(l.tail == NONE ? l.head : page[l.tail].next) = p;
		l.tail = p;
		l.nr++;
	}
	void offer(u32 p, u8 group, bool ws)
	{
		Counts &c = counts[who(p, group)];
		c.offers++;
		c.copies += store.offer(keys[p], ws);
	}
	void shrink(Cgroup &g)
	{
		while (g.list[1].nr + g.list[2].nr > g.room) {
			while (g.list[2].nr > g.list[1].nr) {
				u32 p = g.list[2].head;
				unlink(g, p);
				append(g, p, 1);
				page[p].workingset = true;
				page[p].referenced = false;
			}
			u32 p = g.list[1].head;
			unlink(g, p);
			Page &e = page[p];
			e.shadow_workingset = e.workingset;
			e.age = ++g.age;
			offer(p, e.cgroup, e.workingset);
		}
	}
	void insert(Cgroup &g, u32 p, bool mapped)
	{
		Page &e = page[p];
		bool again = e.age && g.age - e.age <= g.list[2].nr;
		e.workingset = again && e.shadow_workingset;
		e.referenced = !mapped;
		append(g, p, again ? 2 : 1);
		g.age += again;
		shrink(g);
	}
	void accessed(Cgroup &g, u32 p)
	{
		Page &e = page[p];
		if (e.where == 1 && e.referenced) {
			unlink(g, p);
			append(g, p, 2);
			e.referenced = false;
			g.age++;
		} else {
			e.referenced = true;
		}
	}
	void drop(u32 p)
	{
		Page &e = page[p];
		if (e.where)
			unlink(cgroup[e.cgroup], p);
		e.age = 0;
		e.workingset = e.shadow_workingset = false;
		store.invalidate(keys[p]);
	}
	void from_disk(u32 p, u32 by)
	{
		counts[by].disk++;
		counts[by].requests += p != last_miss[by] + 1 || p % REQUEST == 0;
		last_miss[by] = p;
	}
	void access(u32 p, u8 group, Kind kind)
	{
		u32 by = who(p, group);
		Counts &c = counts[by];
		Page &e = page[p];
		const Key &k = keys[p];

		if (kind == DELETED)
			return drop(p);
		if (kind == SWAP_OUT)
			return offer(p, group, false);
		c.accesses++;
		u32 &last = last_page.try_emplace(k.space, ~0u).first->second;
		store.in_sequence = k.offset - last <= 1;
		last = k.offset;
		if (e.where) {
			c.ram++;
			if (kind == WRITE)
				store.invalidate(k);
			return accessed(cgroup[e.cgroup], p);
		}
		bool found = store.has(k);
		if (kind == WRITE) {
			store.invalidate(k);
			c.ram++;
		} else if (found) {
			c.area++;
			if (kind == READ)
				return store.read(k);
			store.load(k);
		} else {
			from_disk(p, by);
		}
		if (kind == SWAP_IN)
			return;
		e.cgroup = group;
		insert(cgroup[group], p, kind == MAP);
	}
};

/* ------------------------------------------------------------------------- what is played */

struct Play {
	std::vector<Key> keys;
	std::vector<u32> rooms;
	std::vector<record> records;
	std::map<std::pair<u32, bool>, std::pair<u32, u32>> file; /* its first page and how many */
};

static void number_pages(Play &play)
{
	for (auto &e : play.records)
		if (!e.frames() && e.kind != DELETED) {
			u32 &n = play.file[{e.file, e.swap()}].second;
			n = std::max(n, e.first + e.nr);
		}
	for (auto &[name, file] : play.file) {
		/* A gap, so that the last page of one and the first of the next are no run. */
		file.first = ((u32)play.keys.size() + 2 * REQUEST - 1) / REQUEST * REQUEST;
		play.keys.resize(file.first);
		for (u32 i = 0; i < file.second; i++)
			play.keys.push_back({file.first + i, name.first, i, name.second});
	}
}

static Play from_file(const std::string &path)
{
	FILE *in = fopen(path.c_str(), "re");
	Play play;
	char kind;
	unsigned cgroup, file;
	unsigned long first, nr;
	int got;

	if (!in)
		die("cannot open " + path);
	while ((got = fscanf(in, " %c %u %u %lu %lu", &kind, &cgroup, &file, &first, &nr)) == 5) {
		if (!strchr("RMWDOIAF", kind) || cgroup >= WHO_MAX)
			die("a record that means nothing: " + std::string(1, kind) + " " +
			    std::to_string(cgroup));
		play.records.push_back({file, (u32)first, (u32)nr, (u8)cgroup, (Kind)kind});
	}
	fclose(in);
	if (got != EOF || play.records.empty())
		die(path + ": record " + std::to_string(play.records.size() + 1) +
		    " is none, or there is no record");
	return play;
}

using Next = std::function<void(Random &, record &)>;

struct Zipf {
	std::vector<double> sum;
	std::vector<u32> order;
	Zipf(u32 n, double s, Random &rnd) : sum(n), order(n)
	{
		double t = 0;
		for (u32 i = 0; i < n; i++)
			sum[i] = t += 1 / pow(i + 1, s);
		for (auto &x : sum)
			x /= t;
		for (u32 i = 0; i < n; i++)
			order[i] = i;
		for (u32 i = n - 1; i; i--)
			std::swap(order[i], order[rnd.below(i + 1)]);
	}
	u32 get(Random &rnd)
	{
		double u = (double)(rnd.next() >> 11) / 9007199254740992.0;
		return order[(size_t)(std::lower_bound(sum.begin(), sum.end(), u) - sum.begin())];
	}
};

/* A quarter of the lab's board: 64 pages stand for a MiB. */
static const u32 MIB = 64;
static const u64 ACCESSES = 2000000;
static const u32 RAM_MIB = 700, GROUP_MIB = 160, STREAM_MIB = 40000;

static Next uniform(u32 mib)
{
	return [=](Random &rnd, record &e) { e.first = rnd.below(mib * MIB); };
}

static Next in_turn(u32 mib)
{
	auto n = std::make_shared<u32>(0);
	return [=](Random &, record &e) { e.first = (*n)++ % (mib * MIB); };
}

static Next zipf(u32 mib, Random &rnd)
{
	auto z = std::make_shared<Zipf>(mib * MIB, 0.9, rnd);
	return [=](Random &r, record &e) { e.first = z->get(r); };
}

/* Files of a MiB, popular ones more often, or one after the other. */
static Next files(u32 mib, bool popular, Random &rnd)
{
	auto z = std::make_shared<Zipf>(mib, 0.9, rnd);
	auto n = std::make_shared<u32>(0), page = std::make_shared<u32>(MIB);
	auto file = std::make_shared<u32>(0);
	return [=](Random &r, record &e) {
		if (*page == MIB) {
			*file = popular ? z->get(r) : (*n)++ % mib;
			*page = 0;
		}
		e.file = 1 + *file;
		e.first = (*page)++;
	};
}

/* Two by turns, the second of other files and perhaps of another cgroup, and faster. */
static Next beside(Next a, Next b, bool cgroup, u32 faster = 1)
{
	return [=](Random &rnd, record &e) {
		if ((rnd.next() >> 40) % (1 + faster) == 0)
			return a(rnd, e);
		b(rnd, e);
		e.file += e.file ? 10000 : 1;
		e.cgroup = cgroup;
	};
}

struct Load {
	const char *name;
	bool cgroups, mapped, by_file;
	std::function<Next(Random &)> make;
};

static const std::vector<Load> &loads()
{
	static const std::vector<Load> all = {
		{"uniform-864", false, false, true, [](Random &) { return uniform(864); }},
		{"uniform-864-mapped", false, true, true, [](Random &) { return uniform(864); }},
		{"uniform-1536", false, false, true, [](Random &) { return uniform(1536); }},
		{"zipf-1536", false, false, true, [](Random &r) { return zipf(1536, r); }},
		{"zipf-4096", false, false, true, [](Random &r) { return zipf(4096, r); }},
		{"zipf-4096-mapped", false, true, true, [](Random &r) { return zipf(4096, r); }},
		{"loop-864", false, false, true, [](Random &) { return in_turn(864); }},
		{"loop-864-mapped", false, true, true, [](Random &) { return in_turn(864); }},
		{"loop-1100", false, false, true, [](Random &) { return in_turn(1100); }},
		{"loop-1536", false, false, true, [](Random &) { return in_turn(1536); }},
		{"loop-1536-mapped", false, true, true, [](Random &) { return in_turn(1536); }},
		{"uniform-stream", false, false, true,
		 [](Random &) { return beside(uniform(864), in_turn(STREAM_MIB), false); }},
		{"zipf-stream", false, false, true,
		 [](Random &r) { return beside(zipf(1536, r), in_turn(STREAM_MIB), false); }},
		{"cgroups-uniform-stream", true, false, false,
		 [](Random &) { return beside(uniform(352), in_turn(1024), true); }},
		{"cgroups-uniform-fast-stream", true, false, false,
		 [](Random &) { return beside(uniform(352), in_turn(1024), true, 8); }},
		{"cgroups-uniform-loop", true, false, false,
		 [](Random &) { return beside(uniform(352), in_turn(200), true); }},
		{"cgroups-zipf-stream", true, false, false,
		 [](Random &r) { return beside(zipf(1536, r), in_turn(STREAM_MIB), true); }},
		{"zipf-changes", false, false, true,
		 [](Random &r) {
			 Next one = zipf(1536, r), other = zipf(1536, r);
			 auto n = std::make_shared<u64>(0);
			 return [=](Random &rnd, record &e) {
				 bool late = (*n)++ > ACCESSES / 2;
				 (late ? other : one)(rnd, e);
				 e.file = late;
			 };
		 }},
		{"loop-changes", false, false, true,
		 [](Random &) {
			 Next one = in_turn(1536), other = in_turn(864);
			 auto n = std::make_shared<u64>(0);
			 return [=](Random &rnd, record &e) {
				 bool late = (*n)++ > ACCESSES / 2;
				 (late ? other : one)(rnd, e);
				 e.file = late;
			 };
		 }},
		{"files", false, false, false, [](Random &r) { return files(1200, true, r); }},
		{"files-backup", false, false, false,
		 [](Random &r) {
			 return beside(files(1200, true, r), files(3000, false, r), false);
		 }},
	};
	return all;
}

static Play generated(const Load &l)
{
	Random rnd;
	auto next = l.make(rnd);
	Play play;
	play.records.resize(ACCESSES);
	for (auto &e : play.records) {
		e = {0, 0, 1, 0, l.mapped ? MAP : READ};
		next(rnd, e);
	}
	play.rooms = {RAM_MIB * MIB};
	if (l.cgroups)
		play.rooms = {GROUP_MIB * MIB, GROUP_MIB * MIB};
	return play;
}

/* ---------------------------------------------------------------------------------- main */

struct Named {
	std::string name;
	std::function<std::unique_ptr<Store>(u32 frames, u32 pages)> make;
};

/* A shape from words: a name, or name=number, with commas between. */
static Shape shape(const std::string &words)
{
	static const std::map<std::string, u32 Shape::*> fields = {
		{"choices", &Shape::choices}, {"guests", &Shape::guests}, {"ways", &Shape::ways},
		{"rrip", &Shape::rrip},	      {"duel", &Shape::duel},	  {"leaders", &Shape::leaders},
		{"piece", &Shape::piece},     {"few", &Shape::few},	  {"random", &Shape::random},
		{"round", &Shape::round},     {"pays", &Shape::pays},	  {"near", &Shape::near},
		{"far", &Shape::far},	      {"sampled", &Shape::sampled}, {"wsage", &Shape::wsage},
		{"anyread", &Shape::anyread},
	};
	Shape s;
	for (size_t at = 0; at < words.size();) {
		size_t end = std::min(words.find(',', at), words.size()), is;
		std::string w = words.substr(at, end - at), name = w.substr(0, is = w.find('='));
		auto field = fields.find(name);
		if (field == fields.end() || is == w.npos)
			die("what is '" + w + "'?");
		s.*field->second = (u32)strtoul(w.c_str() + is + 1, nullptr, 0);
		at = end + 1;
	}
	return s;
}

static Named sets(const std::string &name, const std::string &words)
{
	Shape s = shape(words);
	return {name, [=](u32 n, u32 pages) { return std::make_unique<Sets>(n, pages, s); }};
}

static std::vector<Named> all_stores()
{
	return {
		{"none", [](u32 n, u32 p) { return std::make_unique<Nothing>(n, p); }},
		{"adaptive", [](u32 n, u32 p) { return std::make_unique<Fifo>(n, p, true, false); }},
		{"fifo", [](u32 n, u32 p) { return std::make_unique<Fifo>(n, p, false, false); }},
		{"workingset", [](u32 n, u32 p) { return std::make_unique<Fifo>(n, p, false, true); }},
		sets("2x8-fifo", "choices=2,ways=8,rrip=0,duel=0"),
		sets("2x8-pages", "choices=2,ways=8,piece=0,random=1,near=0,wsage=1"),
		sets("2x8", "choices=2,ways=8"),
		sets("1x16", "ways=16"),
		sets("1x32-any", "anyread=1"),
		sets("1x32", ""),
		sets("guests", "choices=2,guests=1"),
		sets("1x64", "ways=64"),
	};
}

struct Range {
	u32 first = 0, nr = 0;
};

static Range range(const std::string &text, u32 frames)
{
	Range r;
	if (sscanf(text.c_str(), "%u:%u", &r.first, &r.nr) != 2 || r.first > frames ||
	    r.nr > frames - r.first)
		die("no frames of the area: '" + text + "'");
	return r;
}

static void play_one(const Play &play, const Named &named, u32 frames, bool by_file, Range owned,
		     Range taken, u32 from)
{
	auto store = named.make(frames, (u32)play.keys.size());
	System system(play.keys, *store, play.rooms, by_file);
	size_t n = play.records.size(), at = 0;
	Counts before[WHO_MAX];

	store->take(owned.first, owned.nr);
	for (auto &e : play.records) {
		if (at == n * from / 1000)
			std::copy(system.counts, system.counts + WHO_MAX, before);
		if (taken.nr && at == n / 2 + n / 8)
			store->take(taken.first, taken.nr);
		if (taken.nr && at == n / 2 + n / 4)
			store->give(taken.first, taken.nr);
		at++;
		if (e.frames()) {
			if (e.first > frames || e.nr > frames - e.first)
				die("the owner has frames beyond the area: is --frames right?");
			e.kind == ALLOC ? store->take(e.first, e.nr) : store->give(e.first, e.nr);
			continue;
		}
		auto file = play.file.find({e.file, e.swap()});
		if (file == play.file.end())
			continue;
		u32 first = e.kind == DELETED ? 0 : e.first;
		u32 nr = e.kind == DELETED ? file->second.second : e.nr;
		for (u32 i = 0; i < nr; i++)
			system.access(file->second.first + first + i, e.cgroup, e.kind);
	}
	printf("{\"store\":\"%s\",\"who\":{", named.name.c_str());
	const char *comma = "";
	for (u32 i = 0; i < WHO_MAX; i++) {
		const Counts &c = system.counts[i], &b = before[i];
		if (c.accesses == b.accesses && c.offers == b.offers)
			continue;
		printf("%s\"%u\":{\"accesses\":%" PRIu64 ",\"ram\":%" PRIu64 ",\"area\":%" PRIu64
		       ",\"disk\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"offers\":%" PRIu64
		       ",\"copies\":%" PRIu64 "}",
		       comma, i, c.accesses - b.accesses, c.ram - b.ram, c.area - b.area,
		       c.disk - b.disk, c.requests - b.requests, c.offers - b.offers,
		       c.copies - b.copies);
		comma = ",";
	}
	printf("}}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	std::vector<Named> stores = all_stores();
	std::vector<u32> rooms;
	std::string load, owned, taken;
	std::string trace;
	bool by_file = false;
	u32 frames = 256 * MIB, from = 500;

	for (int i = 1; i < argc; i++) {
		std::string a = argv[i];
		auto value = [&]() -> std::string {
			if (i + 1 == argc)
				die(a + " wants a value");
			return argv[++i];
		};
		if (a == "--trace") {
			trace = value();
		} else if (a == "--loads") {
			for (auto &l : loads())
				puts(l.name);
			return 0;
		} else if (a == "--load") {
			load = value();
		} else if (a == "--frames") {
			frames = (u32)strtoul(value().c_str(), nullptr, 0);
		} else if (a == "--ram") {
			unsigned c, n;
			std::string v = value();
			if (sscanf(v.c_str(), "%u=%u", &c, &n) != 2 || c >= WHO_MAX)
				die("--ram wants CGROUP=PAGES, not '" + v + "'");
			rooms.resize(std::max(rooms.size(), (size_t)c + 1));
			rooms[c] = n;
		} else if (a == "--by") {
			by_file = value() == "file";
		} else if (a == "--from") {
			from = std::min((u32)strtoul(value().c_str(), nullptr, 0), 1000u);
		} else if (a == "--owned") {
			owned = value();
		} else if (a == "--take") {
			taken = value();
		} else if (a == "--only-given") {
			stores.clear();
		} else if (a == "--store") {
			std::string w = value();
			size_t colon = w.find(':');
			stores.push_back(sets(w.substr(0, colon),
					      colon == w.npos ? "" : w.substr(colon + 1)));
		} else {
			die("what is '" + a + "'?");
		}
	}
	if (trace.empty() == load.empty())
		die("--trace FILE or --load NAME");
	if (frames < 1024 || frames % 64)
		die("--frames: at least 1024, and a multiple of 64");
	Play play;
	if (!trace.empty()) {
		play = from_file(trace);
		play.rooms = rooms;
	} else {
		auto found = std::find_if(loads().begin(), loads().end(),
					  [&](const Load &l) { return load == l.name; });
		if (found == loads().end())
			die("no load '" + load + "'; --loads names them");
		play = generated(*found);
		by_file = found->by_file;
	}
	number_pages(play);
	for (auto &s : stores)
		play_one(play, s, frames, by_file, owned.empty() ? Range{} : range(owned, frames),
			 taken.empty() ? Range{} : range(taken, frames), from);
}
