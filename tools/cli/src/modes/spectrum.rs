//! `--latency-dist`: prints a line per interval. Each column is a range of durations, and its colour shows the number
//! of PINGs in the range.

use super::latency::ping;
use super::pause;
use crate::failure::Failure;
use crate::session::CliSession;
use std::time::{Duration, Instant};

/// Interval between two PINGs.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Default duration of a line.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Number of lines between legends.
const LINES_PER_LEGEND: u32 = 20;

/// Columns: upper bound in microseconds, and sign.
const COLUMNS: [(u64, char); 29] = [
    (10, '.'),
    (125, '-'),
    (250, '*'),
    (500, '#'),
    (1_000, '1'),
    (2_000, '2'),
    (3_000, '3'),
    (4_000, '4'),
    (5_000, '5'),
    (6_000, '6'),
    (7_000, '7'),
    (8_000, '8'),
    (9_000, '9'),
    (10_000, 'A'),
    (20_000, 'B'),
    (30_000, 'C'),
    (40_000, 'D'),
    (50_000, 'E'),
    (100_000, 'F'),
    (200_000, 'G'),
    (300_000, 'H'),
    (400_000, 'I'),
    (500_000, 'J'),
    (1_000_000, 'K'),
    (2_000_000, 'L'),
    (4_000_000, 'M'),
    (8_000_000, 'N'),
    (16_000_000, 'O'),
    (30_000_000, 'P'),
];

/// Signs of the last two columns: up to a minute, and longer.
const LAST_SIGNS: [char; 2] = ['Q', '?'];
const LAST_MICROS: u64 = 60_000_000;

const COLUMN_COUNT: usize = COLUMNS.len() + LAST_SIGNS.len();

/// Colours of a 256-colour terminal, from zero to the maximum.
const PALETTE: [u8; 19] = [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 144, 143, 142, 184, 226, 214, 208, 202, 196];

const LEGEND: &str = "\
. - * #          .01 .125 .25 .5 milliseconds
1,2,3,...,9      from 1 to 9     milliseconds
A,B,C,D,E        10,20,30,40,50  milliseconds
F,G,H,I,J        .1,.2,.3,.4,.5       seconds
K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds
";

/// Shows the spectrum forever.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>) -> Result<(), Failure> {
    session.connect()?;
    let interval = session.options.interval.unwrap_or(LINE_INTERVAL);
    let mut lines = 0;
    loop {
        let mut counts = [0u32; COLUMN_COUNT];
        let start = Instant::now();
        while start.elapsed() < interval {
            counts[column(ping(session)?)] += 1;
            pause(session, SAMPLE_INTERVAL)?;
        }
        if lines % LINES_PER_LEGEND == 0 {
            session.output.print(legend())?;
        }
        lines += 1;
        session.output.print(line(&counts))?;
    }
}

fn column(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let limits = COLUMNS.iter().map(|(limit, _)| *limit).chain([LAST_MICROS]);
    limits.take_while(|limit| micros > *limit).count()
}

fn legend() -> String {
    let rule = "---------------------------------------------\n";
    let palette: String = PALETTE.iter().map(|colour| format!("\x1b[48;5;{colour}m ")).collect();
    format!("{rule}{LEGEND}From 0 to 100%: {palette}\x1b[0m\n{rule}")
}

fn line(counts: &[u32; COLUMN_COUNT]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let signs = COLUMNS.iter().map(|(_, sign)| *sign).chain(LAST_SIGNS);
    let columns: String =
        counts.iter().zip(signs).map(|(count, sign)| format!("\x1b[48;5;{}m{sign}", colour(*count, most))).collect();
    // The signs are black, and visible only on a coloured background.
    format!("\x1b[38;5;0m{columns}\x1b[0m\n")
}

/// Returns the colour of a count. Only a count of zero has the first colour.
fn colour(count: u32, most: u32) -> u8 {
    let steps = PALETTE.len() as u64 - 1;
    PALETTE[(u64::from(count) * steps).div_ceil(u64::from(most)) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_columns() {
        let sign = |micros| {
            let index = column(Duration::from_micros(micros));
            COLUMNS.iter().map(|(_, sign)| *sign).chain(LAST_SIGNS).nth(index).unwrap()
        };
        assert_eq!(
            [0, 10, 11, 125, 126, 1_000, 30_000_000, 60_000_000, 60_000_001].map(sign),
            ['.', '.', '-', '-', '*', '1', 'P', 'Q', '?']
        );
    }

    #[test]
    fn colours_tell_none_from_few_and_all() {
        assert_eq!([colour(0, 100), colour(1, 100), colour(100, 100)], [0, 233, 196]);
    }
}
