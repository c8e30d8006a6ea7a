//! Charts as inline SVG: bars, lines, and conversations over time. Colours come from the page's style sheet, so that
//! one chart works in light and dark mode.

use std::fmt::Write as _;

use super::results::TranscriptLine;

/// Width of every chart in its own units. The page scales it.
const WIDTH: f64 = 760.0;
/// Space for labels to the left of bars and lines.
const LEFT: f64 = 190.0;
/// Space for values to the right of the longest bar.
const RIGHT: f64 = 150.0;
const BAR: f64 = 16.0;
const BAR_GAP: f64 = 3.0;
const GROUP_GAP: f64 = 9.0;

/// Escapes text for contents and attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A bar of a chart.
pub struct Bar {
    /// Length of the bar; `None` if there is no value.
    pub value: Option<f64>,
    /// Text at its end.
    pub text: String,
    /// True for an estimate.
    pub faint: bool,
}

/// A group of bars, one for each series.
pub struct Group {
    /// Label of the group.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// Draws horizontal bars that start at zero, so that lengths are proportional to values.
pub fn bars(title: &str, groups: &[Group]) -> String {
    let heights = groups.iter().map(|group| group.bars.len() as f64 * (BAR + BAR_GAP) + GROUP_GAP);
    let height: f64 = heights.sum::<f64>() + GROUP_GAP;
    let longest = groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.value).fold(0.0, f64::max);
    let mut svg = open(title, height);
    let mut y = GROUP_GAP;
    for group in groups {
        let middle = y + group.bars.len() as f64 * (BAR + BAR_GAP) / 2.0 + 3.0;
        text(&mut svg, LEFT - 10.0, middle, "end", "", &group.label);
        for (series, bar) in group.bars.iter().enumerate() {
            write_bar(&mut svg, bar, series, y, longest);
            y += BAR + BAR_GAP;
        }
        y += GROUP_GAP;
    }
    svg + "</svg>"
}

fn write_bar(svg: &mut String, bar: &Bar, series: usize, y: f64, longest: f64) {
    let share = bar.value.map_or(0.0, |value| value / longest.max(f64::MIN_POSITIVE));
    let width = (share * (WIDTH - LEFT - RIGHT)).max(if bar.value.is_some() { 1.0 } else { 0.0 });
    let faint = if bar.faint { " faint" } else { "" };
    // Writing to a string can't fail.
    let _ = write!(svg, r#"<rect class="s{series}{faint}" x="{LEFT}" y="{y:.1}" width="{width:.1}" height="{BAR}"/>"#);
    text(svg, LEFT + width + 6.0, y + BAR - 4.0, "start", "value", &bar.text);
}

fn open(title: &str, height: f64) -> String {
    let title = escaped(title);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{title}"><title>{title}</title>"#)
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
    let text = escaped(text);
    let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#);
}

/// One line of a chart.
pub struct Series {
    /// Points of x and y, both above zero.
    pub points: Vec<(f64, f64)>,
}

const PLOT_LEFT: f64 = 90.0;
const PLOT_TOP: f64 = 14.0;
const PLOT_WIDTH: f64 = 620.0;
const PLOT_HEIGHT: f64 = 220.0;
const PLOT_BOTTOM: f64 = 46.0;

/// Ranges of both axes, as powers of ten.
struct Axes {
    x: (i32, i32),
    y: (i32, i32),
}

impl Axes {
    fn around(series: &[Series]) -> Axes {
        let points = || series.iter().flat_map(|line| &line.points);
        Axes { x: decades(points().map(|point| point.0)), y: decades(points().map(|point| point.1)) }
    }

    fn x(&self, value: f64) -> f64 {
        PLOT_LEFT + PLOT_WIDTH * share(value, self.x)
    }

    fn y(&self, value: f64) -> f64 {
        PLOT_TOP + PLOT_HEIGHT * (1.0 - share(value, self.y))
    }
}

/// Returns the powers of ten around the values; at least one decade.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    let low = if low == f64::MAX { 0 } else { low.log10().floor() as i32 };
    (low, (high.log10().ceil() as i32).max(low + 1))
}

fn share(value: f64, (low, high): (i32, i32)) -> f64 {
    (value.log10() - f64::from(low)) / f64::from(high - low)
}

/// Draws lines over two logarithmic axes. `y_label` formats the powers of ten on the y axis.
pub fn lines(title: &str, x_title: &str, series: &[Series], y_label: impl Fn(f64) -> String) -> String {
    let axes = Axes::around(series);
    let mut svg = open(title, PLOT_TOP + PLOT_HEIGHT + PLOT_BOTTOM);
    for power in axes.y.0..=axes.y.1 {
        let y = axes.y(10f64.powi(power));
        let end = PLOT_LEFT + PLOT_WIDTH;
        let _ = write!(svg, r#"<line class="grid" x1="{PLOT_LEFT}" x2="{end}" y1="{y:.1}" y2="{y:.1}"/>"#);
        text(&mut svg, PLOT_LEFT - 8.0, y + 4.0, "end", "", &y_label(10f64.powi(power)));
    }
    for power in axes.x.0..=axes.x.1 {
        let (x, bottom) = (axes.x(10f64.powi(power)), PLOT_TOP + PLOT_HEIGHT);
        let _ = write!(svg, r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{PLOT_TOP}" y2="{bottom}"/>"#);
        let number = crate::report::grouped(10f64.powi(power.max(0)) as u64);
        text(&mut svg, x, bottom + 18.0, "middle", "", &number);
    }
    text(&mut svg, PLOT_LEFT + PLOT_WIDTH / 2.0, PLOT_TOP + PLOT_HEIGHT + 38.0, "middle", "value", x_title);
    series.iter().enumerate().for_each(|(index, line)| write_line(&mut svg, &axes, index, line));
    svg + "</svg>"
}

fn write_line(svg: &mut String, axes: &Axes, index: usize, line: &Series) {
    let place = |&(x, y): &(f64, f64)| format!("{:.1},{:.1}", axes.x(x), axes.y(y));
    let points: Vec<String> = line.points.iter().map(place).collect();
    let _ = write!(svg, r#"<polyline class="l{index}" points="{}"/>"#, points.join(" "));
    for &(x, y) in &line.points {
        let (x, y) = (axes.x(x), axes.y(y));
        let _ = write!(svg, r#"<circle class="s{index}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#);
    }
}

const LANE_CLIENT: f64 = 26.0;
const LANE_SERVER: f64 = 96.0;
const LANE_LEFT: f64 = 70.0;
const LANE_WIDTH: f64 = 620.0;
const LANE_HEIGHT: f64 = 132.0;

/// Draws the conversation of client and server over time: each request leads down to the server, and its reply back up.
pub fn exchange(title: &str, lines: &[&TranscriptLine], longest_ms: f64) -> String {
    let at = |line: &TranscriptLine| LANE_LEFT + LANE_WIDTH * line.at_ms / longest_ms.max(f64::MIN_POSITIVE);
    let (sent, received): (Vec<&TranscriptLine>, Vec<&TranscriptLine>) =
        lines.iter().partition(|line| line.speaker == "Client");
    let mut svg = open(title, LANE_HEIGHT);
    for (name, y) in [("client", LANE_CLIENT), ("server", LANE_SERVER)] {
        let end = LANE_LEFT + LANE_WIDTH;
        let _ = write!(svg, r#"<line class="lane" x1="{LANE_LEFT}" x2="{end}" y1="{y}" y2="{y}"/>"#);
        text(&mut svg, LANE_LEFT - 8.0, y + 4.0, "end", "", name);
    }
    for (request, reply) in sent.iter().zip(&received) {
        let (from, to) = (at(request), at(reply));
        let middle = (from + to) / 2.0;
        let way = format!("{from:.1},{LANE_CLIENT} {middle:.1},{LANE_SERVER} {to:.1},{LANE_CLIENT}");
        let _ = write!(svg, r#"<polyline class="l0" points="{way}"/>"#);
        let _ = write!(svg, r#"<circle class="s0" cx="{to:.1}" cy="{LANE_CLIENT}" r="3"/>"#);
    }
    if let Some(last) = received.last() {
        let end = at(last);
        let anchor = if end > LANE_LEFT + LANE_WIDTH / 2.0 { "end" } else { "start" };
        text(&mut svg, end, LANE_CLIENT - 10.0, anchor, "value", &super::html::time(last.at_ms / 1e3));
    }
    text(&mut svg, LANE_LEFT, LANE_HEIGHT - 8.0, "start", "value", title);
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bar = |value| Bar { value: Some(value), text: "<1>".to_owned(), faint: false };
        let groups = [Group { label: "a & b".to_owned(), bars: vec![bar(4.0), bar(1.0)] }];
        let svg = bars("t", &groups);
        let widths: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths, [WIDTH - LEFT - RIGHT, (WIDTH - LEFT - RIGHT) / 4.0]);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;1&gt;"), "{svg}");
    }

    #[test]
    fn axes_go_from_power_to_power() {
        assert_eq!(decades([3.0, 250.0].into_iter()), (0, 3));
        assert_eq!(decades([10.0].into_iter()), (1, 2));
        assert_eq!(decades(std::iter::empty()), (0, 1));
        let line = Series { points: vec![(1.0, 10.0), (100.0, 1000.0)] };
        let axes = Axes::around(&[line]);
        assert_eq!((axes.x(1.0), axes.x(100.0)), (PLOT_LEFT, PLOT_LEFT + PLOT_WIDTH));
        assert_eq!((axes.y(1000.0), axes.y(10.0)), (PLOT_TOP, PLOT_TOP + PLOT_HEIGHT));
    }
}
