//! Responses with the common headers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;

use crate::failure::Failure;
use crate::json;

/// Body size in bytes from which a response keeps its request's turn until it is sent. This limits the number of large
/// bodies in memory for slow clients.
const LARGE_BYTES: u64 = 1 << 20;

/// A response without its turn.
pub(crate) type Answered = Response<Content>;

/// A body that is complete, or arrives in pieces.
pub(crate) type Content = Either<Full<Bytes>, Live>;

/// A body of pieces, until their sender ends it.
#[derive(Debug)]
pub(crate) struct Live(Receiver<Bytes>);

impl Body for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A body with the turn that it keeps while it is being sent.
pub(crate) struct Held {
    body: Content,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Creates a response; a small one releases its request's turn at once.
    pub(crate) fn hold(answered: Answered, turn: Option<OwnedSemaphorePermit>) -> Response<Held> {
        answered.map(|body| {
            let is_large = matches!(&body, Either::Left(whole) if whole.size_hint().lower() > LARGE_BYTES);
            Held { body, _turn: turn.filter(|_| is_large) }
        })
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().body {
            Either::Left(whole) => Pin::new(whole).poll_frame(context),
            Either::Right(live) => Pin::new(live).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Left(whole) => whole.is_end_stream(),
            Either::Right(live) => live.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Left(whole) => whole.size_hint(),
            Either::Right(live) => live.size_hint(),
        }
    }
}

/// Headers of every response: no guessing of types, no caching, no embedding in other pages, no referrer.
const ALWAYS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
/// Policy for pages without their own: nothing is allowed.
pub(crate) const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Creates a response with a content type and a content security policy.
pub(crate) fn with(status: StatusCode, kind: &'static str, policy: &'static str, body: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    set_headers(&mut response, kind, policy);
    response
}

/// Creates a response of lines of JSON that arrive while it is open.
pub(crate) fn live(lines: Receiver<Bytes>) -> Answered {
    let mut response = Response::new(Either::Right(Live(lines)));
    set_headers(&mut response, "application/x-ndjson", NOTHING);
    response
}

fn set_headers(response: &mut Answered, kind: &'static str, policy: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in ALWAYS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Creates a JSON response.
pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Answered {
    with(status, "application/json", NOTHING, body)
}

/// Creates the response to a failed request: `{"error":"..."}`.
pub(crate) fn failure(failure: &Failure) -> Answered {
    let mut body = Vec::new();
    json::error(failure.text.as_bytes(), &mut body);
    let mut response = json(failure.status, body);
    let headers = response.headers_mut();
    match failure.status {
        StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}
