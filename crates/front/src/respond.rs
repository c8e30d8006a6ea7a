//! Responses, each with the headers that all of them have.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};

use tokio::sync::OwnedSemaphorePermit;

use crate::failure::Failure;
use crate::json;

/// Bytes from which on a body keeps its request's turn until it is sent, so that clients that read slowly can't have more of them made
/// than may run at a time.
const LARGE_BYTES: u64 = 1 << 20;

/// What is answered.
pub(crate) type Answered = Response<Full<Bytes>>;

/// A body, and what it keeps from others while it is being sent.
pub(crate) struct Held {
    body: Full<Bytes>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// A response that gives its request's turn to others at once, if it is small.
    pub(crate) fn hold(answered: Answered, turn: Option<OwnedSemaphorePermit>) -> Response<Held> {
        answered.map(|body| {
            let is_large = body.size_hint().lower() > LARGE_BYTES;
            Held { body, _turn: turn.filter(|_| is_large) }
        })
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Headers of every response: its type is what it says, nothing of it is kept or shown within another page, and no address goes to
/// others.
const ALWAYS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];
/// What a page without a policy of its own may do: nothing.
pub(crate) const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// A response of this type, whose page may do what the policy says.
pub(crate) fn with(status: StatusCode, kind: &'static str, policy: &'static str, body: impl Into<Bytes>) -> Answered {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in ALWAYS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// JSON.
pub(crate) fn json(status: StatusCode, body: Vec<u8>) -> Answered {
    with(status, "application/json", NOTHING, body)
}

/// `{"error":"..."}`
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
