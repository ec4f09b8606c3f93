// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a comparison says in the end: does brug help, by how much, and how sure is that?
//!
//! Runs of the same round are compared with each other, because what disturbs the machine disturbs
//! both. A difference counts if it is worth mentioning and so many rounds agree about it that
//! tosses of a coin seldom would. There is none if so many rounds agree that it is not worth mentioning.

use std::fmt;

use serde::Serialize;

/// A smaller difference is none, whatever the rounds say.
const WORTH: f64 = 0.03;
/// The rounds agree if coin tosses would be as one-sided in at most this share of cases.
const CHANCE: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// brug takes less processor time.
    Helps,
    /// It takes more.
    Costs,
    /// The difference is too small to matter.
    Same,
    /// There may be a difference; the rounds do not agree about it, or are too few.
    Unsure,
}

/// What the rounds say of brug's processor time, with glibc's as 1.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub finding: Finding,
    pub cpu_ratio: f64,
    pub cpu_ratio_min: f64,
    pub cpu_ratio_max: f64,
    /// Rounds in which brug took less time, and more.
    pub less: usize,
    pub more: usize,
    /// How often rounds would agree as well if each were the toss of a coin.
    pub chance: f64,
    pub peak_rss_ratio: f64,
}

/// Sorts some numbers; the middle one, or halfway between the two that are.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

/// Between which of some sorted numbers the median of all that there could be is, beyond chance; `None` if these are
/// too few to say.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    let left_out = (0..n.div_ceil(2))
        .take_while(|&k| coin(n - k, n) <= CHANCE)
        .last()?;
    Some((sorted[left_out], sorted[n - 1 - left_out]))
}

/// The probability that at least `most` of `n` tosses of a coin fall on the same side.
fn coin(most: usize, n: usize) -> f64 {
    const STEP: i32 = 500;
    let mut ways = 1.0;
    let mut sum = 0.0;
    // There are 2^n outcomes in all. What of that can be divided out on the way is, as from a thousand tosses
    // on it is more than the numbers can be.
    let mut left = n as i32;
    for heads in 0..=n {
        if heads >= most {
            sum += ways;
        }
        ways = ways * (n - heads) as f64 / (heads + 1) as f64;
        if ways > 2f64.powi(STEP) {
            ways *= 2f64.powi(-STEP);
            sum *= 2f64.powi(-STEP);
            left -= STEP;
        }
    }
    (2.0 * sum * 2f64.powi(-left)).min(1.0)
}

impl Verdict {
    /// `cpu` and `rss`: brug's of glibc's, one number for each round, of which there is one at least.
    pub fn new(mut cpu: Vec<f64>, mut rss: Vec<f64>) -> Self {
        let less = cpu.iter().filter(|&&ratio| ratio < 1.0).count();
        let more = cpu.iter().filter(|&&ratio| ratio > 1.0).count();
        let chance = coin(less.max(more), less + more);
        let cpu_ratio = median(&mut cpu);
        let small = |ratio: f64| (ratio - 1.0).abs() < WORTH;
        let finding = if interval(&cpu).is_some_and(|(from, to)| small(from) && small(to)) {
            Finding::Same
        } else if small(cpu_ratio) || chance > CHANCE {
            Finding::Unsure
        } else if cpu_ratio < 1.0 {
            Finding::Helps
        } else {
            Finding::Costs
        };
        Verdict {
            finding,
            cpu_ratio,
            cpu_ratio_min: cpu[0],
            cpu_ratio_max: cpu[cpu.len() - 1],
            less,
            more,
            chance,
            peak_rss_ratio: median(&mut rss),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.finding {
            Finding::Helps => "brug helps",
            Finding::Costs => "brug costs time here",
            Finding::Same => "brug makes no difference",
            Finding::Unsure => "not clear; more runs (-n) may tell",
        })?;
        write!(
            f,
            ": {:.2} of glibc's processor time ({:.2} to {:.2}), {:.2} of its peak memory; ",
            self.cpu_ratio, self.cpu_ratio_min, self.cpu_ratio_max, self.peak_rss_ratio
        )?;
        let rounds = self.less + self.more;
        let (count, which) = if self.less >= self.more {
            (self.less, "less")
        } else {
            (self.more, "more")
        };
        write!(
            f,
            "{which} time in {count} of {rounds} rounds, as chance alone would have it in {:.0} of 100 cases",
            self.chance * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cpu: &[f64]) -> Finding {
        Verdict::new(cpu.to_vec(), vec![1.0]).finding
    }

    #[test]
    fn a_difference_counts_if_it_matters_and_rounds_agree() {
        assert_eq!(finding(&[0.7, 0.8, 0.75, 0.9, 0.6]), Finding::Helps);
        assert_eq!(finding(&[1.3, 1.2, 1.25, 1.1, 1.4]), Finding::Costs);
        assert_eq!(finding(&[0.98, 0.99, 0.985, 0.99, 0.98]), Finding::Same);
        // One round is against it; three are too few.
        assert_eq!(finding(&[0.7, 0.8, 0.75, 1.01, 0.6]), Finding::Unsure);
        assert_eq!(finding(&[0.1, 0.1, 0.1]), Finding::Unsure);
        assert_eq!(finding(&[0.5]), Finding::Unsure);
    }

    #[test]
    fn there_is_no_difference_if_rounds_agree_about_that() {
        assert_eq!(finding(&[1.0; 5]), Finding::Same);
        assert_eq!(finding(&[1.0; 4]), Finding::Unsure);
        assert_eq!(finding(&[0.5, 0.6, 1.0, 1.6, 1.5]), Finding::Unsure);
        // Of eight rounds one on each side may be left out, of seven none.
        let seven = [1.0, 1.01, 0.99, 1.0, 0.98, 1.02, 1.5];
        assert_eq!(finding(&seven), Finding::Unsure);
        let eight = [1.0, 1.01, 0.99, 1.0, 0.98, 1.02, 1.5, 0.5];
        assert_eq!(finding(&eight), Finding::Same);
    }

    #[test]
    fn the_median_of_an_even_number_is_halfway_between_two() {
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(Verdict::new(vec![0.5, 1.0], vec![1.0, 2.0]).cpu_ratio, 0.75);
    }

    #[test]
    fn coins() {
        assert_eq!(coin(5, 5), 0.0625);
        assert_eq!(coin(3, 5), 1.0);
        assert_eq!(coin(9, 10), 22.0 / 1024.0);
        assert_eq!(coin(0, 0), 1.0);
        // More ways than a number can tell.
        assert_eq!(coin(2000, 2000), 0.0);
        assert_eq!(coin(1000, 2000), 1.0);
        let near = coin(1045, 2000);
        assert!((0.046..0.047).contains(&near), "{near}");
    }

    #[test]
    fn the_verdict_is_one_line_that_says_how_much_and_how_sure() {
        let text = Verdict::new(vec![0.7, 0.8, 0.75, 0.9, 0.6], vec![1.1]).to_string();
        assert_eq!(
            text,
            "brug helps: 0.75 of glibc's processor time (0.60 to 0.90), 1.10 of its peak memory; \
             less time in 5 of 5 rounds, as chance alone would have it in 6 of 100 cases"
        );
    }
}
