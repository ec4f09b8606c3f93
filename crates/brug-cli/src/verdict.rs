// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a comparison says in the end: does brug help, by how much, and how sure is that?
//!
//! Runs of the same round are compared with each other, because what disturbs the machine disturbs
//! both. A difference counts if it is worth mentioning and so many rounds agree about it that
//! tosses of a coin seldom would.

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

/// The middle of some numbers, the largest of the lower half if there is none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
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
        let finding = if (cpu_ratio - 1.0).abs() < WORTH {
            Finding::Same
        } else if chance > CHANCE {
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
        assert_eq!(finding(&[1.0]), Finding::Same);
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
