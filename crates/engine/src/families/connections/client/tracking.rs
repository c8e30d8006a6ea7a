//! CLIENT TRACKING and related commands: caching of values by clients, and its invalidation.
//!
//! Source of the semantics: Redis's "Client-side caching" page and the command pages of CLIENT TRACKING, CACHING,
//! GETREDIR and TRACKINGINFO, and the replies of a running server.

use commands::error::{Error, Outcome};

use crate::clients::line::redirect;
use crate::listening::tracking::tracking_flag::{BCAST, BROKEN, CACHING, NOLOOP, ON, OPTIN, OPTOUT};
use crate::worker::turn::Turn;

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct TrackingOptions<'t> {
    /// Flags of `tracking_flag`.
    flags: u32,
    redirect: u64,
    prefixes: Vec<&'t [u8]>,
}

fn parse<'t>(turn: &Turn<'t, '_>) -> Result<TrackingOptions<'t>, Error> {
    let mut options = TrackingOptions::default();
    let mut at = 3;
    while at < turn.len() {
        let has_more = at + 1 < turn.len();
        match turn.arg(at).to_ascii_lowercase().as_slice() {
            b"redirect" if has_more => {
                at += 1;
                if options.redirect != 0 {
                    return Err(Error::fixed("ERR A client can only redirect to a single other client"));
                }
                options.redirect = find_receiver(turn, at)?;
            }
            b"prefix" if has_more => {
                at += 1;
                options.prefixes.push(turn.arg(at));
            }
            b"bcast" => options.flags |= BCAST,
            b"optin" => options.flags |= OPTIN,
            b"optout" => options.flags |= OPTOUT,
            b"noloop" => options.flags |= NOLOOP,
            _ => return Err(Error::SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

fn find_receiver(turn: &Turn<'_, '_>, at: usize) -> Result<u64, Error> {
    let id = u64::try_from(turn.int(at)?).ok().filter(|&id| turn.engine().clients.get(id).is_some());
    id.ok_or(Error::fixed("ERR The client ID you want redirect to does not exist"))
}

/// Returns the error if a connection with these flags can't choose these options.
fn contradiction(has: u32, options: &TrackingOptions<'_>) -> Option<&'static str> {
    let wants = options.flags;
    let switches = |from: u32, to: u32| has & from != 0 && wants & to != 0;
    if wants & BCAST == 0 && !options.prefixes.is_empty() {
        Some("ERR PREFIX option requires BCAST mode to be enabled")
    } else if has & ON != 0 && (has ^ wants) & BCAST != 0 {
        Some(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        )
    } else if wants & BCAST != 0 && wants & (OPTIN | OPTOUT) != 0 {
        Some("ERR OPTIN and OPTOUT are not compatible with BCAST")
    } else if wants & OPTIN != 0 && wants & OPTOUT != 0 {
        Some("ERR You can't specify both OPTIN mode and OPTOUT mode")
    } else if switches(OPTIN, OPTOUT) || switches(OPTOUT, OPTIN) {
        Some(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        )
    } else {
        None
    }
}

/// Refuses overlapping prefixes, because a client would be told twice about a key.
fn check_prefixes(own: &[Box<[u8]>], given: &[&[u8]]) -> Outcome {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let error = |new: &[u8], which: &str, other: &[u8]| {
        let text: [&[u8]; 7] = [
            b"ERR Prefix '",
            new,
            b"' overlaps with ",
            which.as_bytes(),
            b" prefix '",
            other,
            b"'. Prefixes for a single client must not overlap.",
        ];
        Err(Error::quoting(text.concat()))
    };
    for (at, new) in given.iter().enumerate() {
        if let Some(old) = own.iter().find(|old| overlap(old, new)) {
            return error(new, "an existing", old);
        }
        if let Some(other) = given[at + 1..].iter().find(|other| overlap(other, new)) {
            return error(new, "another provided", other);
        }
    }
    Ok(())
}

pub(super) fn tracking(turn: &mut Turn<'_, '_>) -> Outcome {
    let options = parse(turn)?;
    if turn.is(2, "on") {
        begin(turn, &options)?;
    } else if turn.is(2, "off") {
        end(turn);
    } else {
        return Err(Error::SYNTAX);
    }
    turn.reply.ok();
    Ok(())
}

fn begin(turn: &mut Turn<'_, '_>, options: &TrackingOptions<'_>) -> Outcome {
    if let Some(text) = contradiction(turn.session.client.tracking_flags(), options) {
        return Err(Error::fixed(text));
    }
    let tracker = turn.session.client.make_tracker().clone();
    let mut prefixes = options.prefixes.as_slice();
    if options.flags & BCAST != 0 {
        check_prefixes(&tracker.prefixes(), prefixes)?;
        if prefixes.is_empty() {
            prefixes = &[b""];
        }
    }
    turn.engine().tracking.begin(&tracker, options.flags, options.redirect, prefixes);
    turn.session.set_caches(true);
    Ok(())
}

fn end(turn: &mut Turn<'_, '_>) {
    if let Some(tracker) = turn.session.client.tracker() {
        turn.worker.engine.tracking.end(tracker);
    }
    turn.session.set_caches(false);
}

pub(super) fn caching(turn: &mut Turn<'_, '_>) -> Outcome {
    let Some(tracker) = turn.session.client.tracker().filter(|tracker| tracker.has(ON)) else {
        return Err(Error::fixed(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    let (mode, wrong_mode) = if turn.is(2, "yes") {
        (OPTIN, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
    } else if turn.is(2, "no") {
        (OPTOUT, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
    } else {
        return Err(Error::SYNTAX);
    };
    if !tracker.has(mode) {
        return Err(Error::fixed(wrong_mode));
    }
    tracker.set(CACHING, true);
    turn.reply.ok();
    Ok(())
}

pub(super) fn getredir(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.reply.int(redirect(&turn.session.client));
    Ok(())
}

pub(super) fn trackinginfo(turn: &mut Turn<'_, '_>) -> Outcome {
    let client = &turn.session.client;
    let flags = client.tracking_flags();
    let words = [
        (ON, "on"),
        (BCAST, "bcast"),
        (OPTIN, "optin"),
        (OPTIN | CACHING, "caching-yes"),
        (OPTOUT, "optout"),
        (OPTOUT | CACHING, "caching-no"),
        (NOLOOP, "noloop"),
        (BROKEN, "broken_redirect"),
    ];
    let mut shown: Vec<&str> = words.iter().filter(|(bits, _)| flags & bits == *bits).map(|(_, word)| *word).collect();
    if flags & ON == 0 {
        shown = vec!["off"];
    }
    let prefixes = client.tracker().map(|tracker| tracker.prefixes()).unwrap_or_default();
    let redirect = redirect(client);
    let reply = &mut turn.reply;
    reply.map(3);
    reply.bulk("flags");
    reply.set(shown.len());
    shown.iter().for_each(|word| reply.bulk(word));
    reply.bulk("redirect");
    reply.int(redirect);
    reply.bulk("prefixes");
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}
