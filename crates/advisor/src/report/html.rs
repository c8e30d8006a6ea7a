//! The report as a self-contained page of HTML: no script, no font, no request. Its content security policy forbids
//! scripts.
//!
//! Texts from clients (names, keys, patterns) are text of the page and never markup: they are all written through
//! [`Escaped`].

use std::fmt::{self, Display, Write};

use super::{bytes, count, duration, id, origin, shown};
use crate::advice::{self, Language};
use crate::findings::{Confidence, Finding, Findings, Group};

const STYLE: &str = include_str!("style.css");
/// Bars of a chart; one more bar holds the rest.
const BARS_MAX: usize = 12;
/// Width of a bar in units of its picture, which is scaled to the page.
const WIDTH: u64 = 1000;

/// Returns the report as a page. `source` names the source of the traffic.
#[must_use]
pub fn html(findings: &Findings, source: &str) -> String {
    let groups = findings.groups();
    let totals: Vec<&Finding> = groups.iter().map(|group| &group.total).collect();
    let mut page = String::new();
    head(&mut page, source);
    sums(&mut page, &totals, findings.dropped());
    if !groups.is_empty() {
        chart_of_trips(&mut page, &totals);
        chart_of_time(&mut page, &totals);
        page += "<h2>Findings</h2>\n";
        languages(&mut page, &totals);
    }
    for (index, group) in groups.iter().enumerate() {
        finding(&mut page, index + 1, group);
    }
    page += "</body>\n</html>\n";
    page
}

/// A text within a page or an attribute.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' => f.write_char('\n')?,
                // Bidirectional marks can make one key look like another.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                    write!(f, "{}", character.escape_unicode())?;
                }
                control if control.is_control() => write!(f, "{}", control.escape_default())?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

fn head(page: &mut String, source: &str) {
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Wasted round trips: {source}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <h1>Wasted round trips</h1>\n<p class=\"quiet\">{source}</p>\n",
        style(),
        source = Escaped(source)
    );
}

/// Trips made and trips wasted, summed over the findings that are about trips.
fn trips(findings: &[&Finding]) -> (u64, u64) {
    let about_trips = findings.iter().filter(|finding| finding.kind.is_about_trips());
    about_trips.fold((0, 0), |(made, wasted), finding| (made + finding.made(), wasted + finding.wasted()))
}

/// Writes the sums of all findings.
fn sums(page: &mut String, findings: &[&Finding], dropped: u64) {
    if findings.is_empty() {
        page.push_str("<p>No wasted round trips were found.</p>\n");
        return;
    }
    let (made, wasted) = trips(findings);
    let lost_ns = findings.iter().map(|finding| finding.lost_ns()).sum();
    page.push_str("<dl class=\"sums\">");
    for (name, value) in [
        ("Findings", count(findings.len() as u64)),
        ("Round trips that could be saved", count(wasted)),
        ("Share of the round trips made", format!("{} %", (wasted * 100).checked_div(made).unwrap_or(0))),
        ("Time lost", duration(lost_ns)),
    ] {
        let _ = write!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value));
    }
    page.push_str("</dl>\n");
    if dropped > 0 {
        let _ = writeln!(page, "<p>The table was full: {} lesser findings are missing.</p>", count(dropped));
    }
}

/// A bar of a chart.
struct Bar {
    label: String,
    /// The finding of this bar.
    id: Option<String>,
    numbers: String,
    /// The trips that would remain, and the trips that can be saved.
    needed: u64,
    wasted: u64,
}

/// Writes a chart: one bar for each of the largest items, and one bar for the others.
fn chart(page: &mut String, title: &str, legend: &str, mut bars: Vec<Bar>, all: impl Fn(u64, u64) -> String) {
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.needed + bar.wasted));
    if bars.len() > BARS_MAX + 1 {
        let others = bars.split_off(BARS_MAX);
        let sum = |part: fn(&Bar) -> u64| others.iter().map(part).sum::<u64>();
        let (needed, wasted) = (sum(|bar| bar.needed), sum(|bar| bar.wasted));
        let label = format!("{} others", others.len());
        bars.push(Bar { label, id: None, numbers: all(needed, wasted), needed, wasted });
    }
    let longest = bars.iter().map(|bar| bar.needed + bar.wasted).max().unwrap_or(0).max(1);
    let scaled = |part: u64| (u128::from(part) * u128::from(WIDTH)).div_ceil(u128::from(longest));
    let _ = write!(page, "<h2>{title}</h2>\n{legend}\n<ul class=\"chart\">\n");
    for bar in &bars {
        let (label, numbers) = (Escaped(&bar.label), Escaped(&bar.numbers));
        let label = match &bar.id {
            Some(id) => format!("<a href=\"#f-{}\"><code>{label}</code></a>", Escaped(id)),
            None => label.to_string(),
        };
        let (needed, wasted) = (scaled(bar.needed), scaled(bar.wasted));
        let _ = writeln!(
            page,
            "<li><p><span>{label}</span> <span class=\"number\">{numbers}</span></p>\
             <svg viewBox=\"0 0 {WIDTH} 14\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{numbers}\">\
             <rect class=\"track\" width=\"{WIDTH}\" height=\"14\"/>\
             <rect class=\"needed\" width=\"{needed}\" height=\"14\"/>\
             <rect class=\"wasted\" x=\"{needed}\" width=\"{wasted}\" height=\"14\"/></svg></li>"
        );
    }
    page.push_str("</ul>\n");
}

/// Returns the steps of a finding as text.
fn label(finding: &Finding) -> String {
    finding.steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn chart_of_trips(page: &mut String, findings: &[&Finding]) {
    let numbers = |needed: u64, wasted: u64| format!("{} made, {} would remain", count(needed + wasted), count(needed));
    let (made, wasted) = trips(findings);
    let bar = |finding: &&Finding| {
        let (wasted, needed) = (finding.wasted(), finding.made() - finding.wasted());
        Bar { label: label(finding), id: Some(id(finding)), numbers: numbers(needed, wasted), needed, wasted }
    };
    let bars: Vec<Bar> = findings.iter().filter(|finding| finding.kind.is_about_trips()).map(bar).collect();
    if bars.is_empty() {
        return;
    }
    let legend = format!(
        "<p class=\"quiet\"><span class=\"key needed\"></span>would remain: {} &nbsp; <span class=\"key wasted\"></span>\
         would be saved: {}</p>",
        count(made - wasted),
        count(wasted)
    );
    chart(page, "Round trips by shape", &legend, bars, numbers);
}

fn chart_of_time(page: &mut String, findings: &[&Finding]) {
    let numbers = |_: u64, lost_ns: u64| duration(lost_ns);
    let timed = findings.iter().filter(|finding| finding.lost_ns() > 0);
    let bar = |finding: &&Finding| {
        let wasted = finding.lost_ns();
        Bar { label: label(finding), id: Some(id(finding)), numbers: numbers(0, wasted), needed: 0, wasted }
    };
    let bars: Vec<Bar> = timed.map(bar).collect();
    if !bars.is_empty() {
        chart(page, "Time lost by shape", "", bars, numbers);
    }
}

/// Returns the style sheet, with the selectors of the blocks to show for each choice of a language.
fn style() -> String {
    let chosen = |language: Language| format!("body:has(#{0}:checked) .{0}, ", language.option());
    let chosen: String = Language::ALL.into_iter().map(chosen).collect();
    STYLE.replace("CHOSEN", &(chosen + "body:has(#all:checked) .block"))
}

/// Writes the radio buttons for the language of the code. The initial choice is the language of the first client with a
/// known library, or all languages.
fn languages(page: &mut String, findings: &[&Finding]) {
    let known = findings.iter().find_map(|finding| Language::of_library(&finding.client.library));
    page.push_str("<fieldset><legend>Code in</legend>");
    let mut choice = |class: &str, name: &str, is_chosen: bool| {
        let checked = if is_chosen { " checked" } else { "" };
        let _ = write!(page, "<label><input type=\"radio\" name=\"language\" id=\"{class}\"{checked}> {name}</label> ");
    };
    for language in Language::ALL {
        choice(language.option(), language.name(), known == Some(language));
    }
    choice("all", "all", known.is_none());
    page.push_str("</fieldset>\n");
}

/// Explains a confidence below the highest.
fn doubt(confidence: Confidence) -> Option<&'static str> {
    match confidence {
        Confidence::High => None,
        Confidence::Medium => Some("True unless a step depends on a reply in a way that the advisor could not see."),
        Confidence::Low => {
            Some("May have another cause: the advisor could not see the replies or the round trips well enough.")
        }
    }
}

fn finding(page: &mut String, number: usize, group: &Group) {
    let finding = &group.total;
    let (advised, confidence) = (advice::advice(finding), finding.sums.confidence());
    let lost = if finding.lost_ns() > 0 { duration(finding.lost_ns()) } else { String::new() };
    let _ = write!(
        page,
        "<article id=\"f-{}\">\n<h3>{number}. {} <span>{}</span> <span class=\"tag\">{} confidence</span></h3>\n\
         <p>{}</p>\n<p class=\"remedy\">{}</p>\n",
        Escaped(&id(finding)),
        finding.kind.name(),
        Escaped(&lost),
        confidence.name(),
        Escaped(&advised.seen),
        Escaped(&advised.remedy)
    );
    if let Some(doubt) = doubt(confidence) {
        let _ = writeln!(page, "<p class=\"quiet\">{doubt}</p>");
    }
    figures(page, group);
    for language in Language::ALL {
        let _ = writeln!(
            page,
            "<div class=\"block {}\"><span>{}, {}</span><pre><code>{}</code></pre></div>",
            language.option(),
            language.name(),
            Escaped(language.library()),
            Escaped(&advice::code(finding, language))
        );
    }
    page.push_str("</article>\n");
}

/// Writes a finding's numbers, its client and some keys.
fn figures(page: &mut String, group: &Group) {
    let finding = &group.total;
    let mut rows = Vec::new();
    if finding.kind.is_about_trips() {
        let remain = finding.made() - finding.wasted();
        rows.push(("Round trips", format!("{} made, {} would remain", count(finding.made()), count(remain))));
    }
    let plural = |number: u64, word: &str| format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" });
    rows.push(("Found", format!("{}, by {}", plural(finding.sums.count, "time"), plural(group.clients, "client"))));
    if finding.sums.bytes > 0 {
        rows.push(("Bytes", bytes(finding.sums.bytes)));
    }
    rows.push(("Client", origin(group).split("; for example ").next().unwrap_or_default().to_owned()));
    if !finding.samples.is_empty() {
        let keys: Vec<String> = finding.samples.iter().map(|sample| shown(sample)).collect();
        rows.push(("Keys", keys.join(", ")));
    }
    page.push_str("<table>");
    for (name, value) in rows {
        let _ = write!(page, "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", Escaped(&value));
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::traffic::Traffic;

    /// The tags of the page; any other tag would come from a client.
    const TAGS: [&str; 34] = [
        "!doctype html",
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "p",
        "dl",
        "div",
        "dt",
        "dd",
        "ul",
        "li",
        "span",
        "a",
        "code",
        "svg",
        "rect",
        "article",
        "table",
        "tr",
        "th",
        "td",
        "pre",
        "fieldset",
        "legend",
        "label",
        "input",
        "/",
        "br",
    ];

    /// Traffic of a client that loops over keys with markup in them.
    fn hostile() -> Traffic {
        let mut traffic = Traffic::new();
        let name = "<script>alert(1)</script>\"'&";
        traffic.connection.set_client(crate::client::Client { name: name.to_owned(), ..Default::default() });
        for number in 0..100 {
            traffic.send(&format!("GET <script>alert('x')</script>\"onload=\"x:{number}"), "x");
        }
        for number in 0..100 {
            traffic.send(&format!("HGET </code><img/src=x>\u{202e}:{number} <b>f</b>"), "x");
        }
        traffic
    }

    fn page(mut traffic: Traffic, source: &str) -> String {
        traffic.close();
        html(&traffic.advisor.findings(), source)
    }

    #[test]
    fn texts_from_clients_never_become_markup() {
        let page = page(hostile(), "<i>redis://x</i>");
        for part in page.split('<').skip(1) {
            let tag = part.trim_start_matches('/').split([' ', '>', '\n']).next().unwrap();
            assert!(TAGS.contains(&tag) || part.starts_with("!doctype html>"), "{tag}");
        }
        assert!(
            page.contains("&lt;script&gt;alert(\\&#39;x\\&#39;)&lt;/script&gt;\\&quot;onload=\\&quot;x:&lt;n&gt;"),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{202e}'));
        // Attributes come from the page only, and no attribute is an event handler.
        for tag in page.split('<').skip(1).filter_map(|part| part.split('>').next()) {
            assert!(!tag.contains(" on"), "{tag}");
        }
    }

    #[test]
    fn the_page_loads_nothing_else() {
        let page = page(hostile(), "a log");
        for forbidden in ["http://", "https://", "src=", "url(", "@import", "<link", "javascript:", "style=\""] {
            let own = page.replace("img/src=x", "").replace("#javascript:checked", "");
            assert!(!own.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn the_page_has_charts_and_code_in_all_languages() {
        let page = page(hostile(), "a log");
        for part in
            ["Round trips by shape", "would remain", "Time lost by shape", "one MGET of all keys", "Jedis", "ioredis"]
        {
            assert!(page.contains(part), "{part}\n{page}");
        }
        for language in Language::ALL {
            let option = language.option();
            assert!(
                page.contains(&format!("id=\"{option}\"")) && page.contains(&format!("#{option}:checked) .{option},"))
            );
        }
        assert_eq!(page.matches("<article").count(), 2);
        assert_eq!(page.matches("<pre>").count(), 2 * Language::ALL.len());
        assert_eq!(page.matches("<svg").count(), 4);
    }

    #[test]
    fn a_page_without_findings_says_so() {
        let page = page(Traffic::new(), "a log");
        assert!(page.contains("No wasted round trips were found.") && page.ends_with("</html>\n"), "{page}");
    }
}
