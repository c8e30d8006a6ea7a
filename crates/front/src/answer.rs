//! Processing of requests.

use std::net::IpAddr;
use std::rc::Rc;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::{Request, Response, StatusCode};
use resp::parse::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::commands::{self, Words};
use crate::credentials::Identity;
use crate::failure::Failure;
use crate::guard::{self, Traces};
use crate::live::View;
use crate::respond::{self, Answered, Held};
use crate::rest::{self, Permit, RestEncoding};
use crate::router::{Route, Verb, route};
use crate::serve::Port;
use crate::upstream_pool::Admitted;
use crate::{ConsoleMode, Terms, console, files, live, metrics};

/// Header with the database for a request's commands; the console sends it.
const DATABASE: HeaderName = HeaderName::from_static("penstock-database");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const ENCODING: HeaderName = HeaderName::from_static("upstash-encoding");
const FORMAT: HeaderName = HeaderName::from_static("upstash-response-format");
/// Error for clients on other machines.
const PROTECTED: &str = "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the \
    default user: set one, or connect from the server's own machine";

/// A slot for one of the requests that may run concurrently.
type Turn = OwnedSemaphorePermit;

/// Responds to a request from this address.
pub(crate) async fn respond(port: &Rc<Port>, request: Request<Incoming>, peer: IpAddr) -> Response<Held> {
    let mut turn = None;
    let answered = choose(port, request, peer, &mut turn).await;
    Held::hold(answered, turn)
}

async fn choose(port: &Rc<Port>, request: Request<Incoming>, peer: IpAddr, turn: &mut Option<Turn>) -> Answered {
    let (parts, body) = request.into_parts();
    let host = match guard::host(&parts) {
        Ok(host) => host.map(str::to_owned),
        Err(why) => return respond::failure(&Failure::bad(why)),
    };
    let request = Request::from_parts(parts, body);
    // Probes come from other machines, without a password.
    if let Some(answered) = probe(port, request.uri().path()) {
        return answered;
    }
    if !port.upstream.admits(peer) {
        return respond::failure(&Failure::new(StatusCode::FORBIDDEN, PROTECTED));
    }
    let Some(verb) = Verb::of(request.method().as_str()) else {
        let text = "ERR only GET, HEAD, POST and PUT are understood";
        let mut response = respond::failure(&Failure::new(StatusCode::METHOD_NOT_ALLOWED, text));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT"));
        return response;
    };
    answer(port, verb, request, host.as_deref(), peer, turn).await.unwrap_or_else(|failure| respond::failure(&failure))
}

async fn answer(
    port: &Rc<Port>,
    verb: Verb,
    request: Request<Incoming>,
    host: Option<&str>,
    peer: IpAddr,
    turn: &mut Option<Turn>,
) -> Result<Answered, Failure> {
    let terms = port.upstream.terms();
    let route = route(verb, request.uri().path(), request.uri().query()).map_err(Failure::bad)?;
    match &route {
        Route::Console(name) => return console::answer(name, terms.console),
        Route::File(path) => {
            let root = terms.files.as_deref().ok_or_else(Failure::absent)?;
            *turn = Some(port.lines.turn(&terms).await?);
            return files::answer(root, path);
        }
        _ => {}
    }
    let asker = Asker::of(request.headers())?;
    if asker.identity == Identity::Anybody {
        guard::check(asker.traces(host, request.headers())).map_err(|why| Failure::new(StatusCode::FORBIDDEN, why))?;
    }
    let is_anonymous = asker.identity == Identity::Anybody;
    let admitted = port.lines.admit(asker.identity, peer, &terms).await?;
    *turn = Some(port.lines.turn(&terms).await?);
    match route {
        Route::Metrics => return figures(port, &admitted, &terms).await,
        Route::ConsoleHistory { span_s, since_s } => return history(port, &admitted, &terms, span_s, since_s).await,
        _ => {}
    }
    let form = RestEncoding::of(value(request.headers(), &ENCODING), value(request.headers(), &FORMAT))?;
    let permit = permit(&route, verb, is_anonymous, &terms)?;
    let body = body(request, &terms).await?;
    let ask = Ask { port, admitted, database: asker.database, permit, terms: &terms };
    execute(ask, route, body, form).await
}

/// Information about the client from the headers.
struct Asker {
    identity: Identity,
    database: u32,
}

impl Asker {
    fn of(headers: &HeaderMap) -> Result<Asker, Failure> {
        let identity = Identity::of_header(value(headers, &AUTHORIZATION))
            .map_err(|why| Failure::new(StatusCode::UNAUTHORIZED, why))?;
        let database = match headers.get(DATABASE) {
            None => 0,
            Some(text) => {
                let number = text.to_str().ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| Failure::bad("ERR Penstock-Database must be the number of a database"))?
            }
        };
        Ok(Asker { identity, database })
    }

    fn traces<'h>(&self, host: Option<&'h str>, headers: &'h HeaderMap) -> Traces<'h> {
        // A value that isn't valid text can't be one of the server's names.
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?.?"));
        Traces { host, origin: text(ORIGIN), fetch_site: text(FETCH_SITE) }
    }
}

fn value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

/// Commands that a request may run.
fn permit(route: &Route, verb: Verb, is_anonymous: bool, terms: &Terms) -> Result<Permit, Failure> {
    if matches!(route, Route::ConsoleRun | Route::ConsoleMonitor | Route::ConsoleMessages) {
        return match terms.console {
            ConsoleMode::Off => Err(Failure::absent()),
            ConsoleMode::ReadOnly => Ok(Permit::Reads { why: "ERR the console is read-only (http-console)" }),
            ConsoleMode::Full => Ok(Permit::Any),
        };
    }
    if !terms.rest {
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "ERR commands by HTTP are off; turn them on with http-rest yes",
        ));
    }
    match verb {
        // An image in a foreign page sends a GET, and over plain HTTP browsers don't reveal the page's origin.
        Verb::Get if is_anonymous => Ok(Permit::Reads {
            why: "ERR without a token, GET runs only commands that read; use POST, or send a token",
        }),
        _ => Ok(Permit::Any),
    }
}

async fn body(request: Request<Incoming>, terms: &Terms) -> Result<Vec<u8>, Failure> {
    let too_large = || {
        let text = format!("ERR the body is larger than {} bytes; see http-max-body", terms.body_bytes_max);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let body = request.into_body();
    if body.size_hint().lower() > terms.body_bytes_max as u64 {
        return Err(too_large());
    }
    match timeout(terms.timeout, Limited::new(body, terms.body_bytes_max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(Failure::bad(format!("ERR the body can't be read: {error}"))),
        Err(_) => Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "ERR the body has not arrived within http-timeout")),
    }
}

/// A request that may run.
struct Ask<'p> {
    port: &'p Rc<Port>,
    admitted: Admitted,
    database: u32,
    permit: Permit,
    terms: &'p Terms,
}

impl Ask<'_> {
    fn check(&self, commands: &[Words]) -> Result<(), Failure> {
        commands.iter().try_for_each(|command| rest::check(&*self.port.upstream, command, self.permit))
    }

    async fn answer_one(&self, command: Words, form: RestEncoding) -> Result<Answered, Failure> {
        let values = self.run(&[command]).await?;
        values.first().map(|value| rest::answer_one(value, form)).ok_or_else(Failure::absent)
    }

    async fn run(&self, commands: &[Words]) -> Result<Vec<Value>, Failure> {
        self.check(commands)?;
        self.run_checked(commands).await
    }

    /// Opens a live view. Its lines arrive while the request is open.
    async fn view(&self, view: View) -> Result<Answered, Failure> {
        Ok(respond::live(live::open(self.port, &self.admitted, self.database, view, self.terms).await?))
    }

    async fn run_checked(&self, commands: &[Words]) -> Result<Vec<Value>, Failure> {
        self.port.lines.run(&self.admitted, self.database, commands, self.terms).await
    }
}

async fn execute(ask: Ask<'_>, route: Route, body: Vec<u8>, form: RestEncoding) -> Result<Answered, Failure> {
    match route {
        Route::One => ask.answer_one(commands::one(&body).map_err(Failure::bad)?, form).await,
        Route::Path { args, behind } => {
            let body = (!body.is_empty()).then_some(body);
            ask.answer_one(args.into_iter().chain(body).chain(behind).collect(), form).await
        }
        Route::Pipeline | Route::ConsoleRun => {
            let commands = commands::many(&body).map_err(Failure::bad)?;
            Ok(rest::answer_many(&ask.run(&commands).await?, form))
        }
        Route::Transaction => {
            let (commands, strings) = (commands::many(&body).map_err(Failure::bad)?, form.strings()?);
            ask.check(&commands)?;
            Ok(rest::answer_transaction(&ask.run_checked(&rest::transaction(commands)).await?, strings))
        }
        Route::ConsoleMonitor => ask.view(View::commands(&commands::one(&body).map_err(Failure::bad)?)?).await,
        Route::ConsoleMessages => ask.view(View::messages(commands::one(&body).map_err(Failure::bad)?)).await,
        Route::Metrics
        | Route::Console(_)
        | Route::ConsoleHistory { .. }
        | Route::File(_)
        | Route::Health
        | Route::Readiness => Err(Failure::absent()),
    }
}

/// Responds to the probe of an orchestrator: 200, or 503 with the reason.
fn probe(port: &Port, path: &str) -> Option<Answered> {
    let plain =
        |status, text: &str| respond::with(status, "text/plain; charset=utf-8", respond::NOTHING, format!("{text}\n"));
    match route(Verb::Get, path, None) {
        Ok(Route::Health) => Some(plain(StatusCode::OK, "ok")),
        Ok(Route::Readiness) => Some(match port.upstream.readiness() {
            Ok(()) => plain(StatusCode::OK, "ok"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
        }),
        _ => None,
    }
}

/// Responds with the history, if the user may read the figures that it consists of.
async fn history(
    port: &Port,
    admitted: &Admitted,
    terms: &Terms,
    span_s: u64,
    since_s: u64,
) -> Result<Answered, Failure> {
    if terms.console == ConsoleMode::Off {
        return Err(Failure::absent());
    }
    let info = vec![b"INFO".to_vec(), b"server".to_vec()];
    let replies = port.lines.run(admitted, 0, &[info], terms).await?;
    if let Some(error) = replies.first().and_then(Value::error) {
        return Err(Failure::new(StatusCode::FORBIDDEN, String::from_utf8_lossy(error)));
    }
    let mut body = Vec::new();
    port.history.borrow().write(span_s, since_s, &mut body);
    Ok(respond::json(StatusCode::OK, body))
}

/// Runs the commands that the metrics are read with.
async fn measured(port: &Port, admitted: &Admitted, terms: &Terms) -> Result<Vec<Value>, Failure> {
    let mut values = port.lines.run(admitted, 0, &metrics::questions(), terms).await?;
    let more = metrics::cluster_questions(&values);
    if !more.is_empty() {
        values.extend(port.lines.run(admitted, 0, &more, terms).await?);
    }
    Ok(values)
}

async fn figures(port: &Port, admitted: &Admitted, terms: &Terms) -> Result<Answered, Failure> {
    let text = match measured(port, admitted, terms).await {
        Ok(values) => metrics::text(&values).map_err(|error| Failure::new(StatusCode::FORBIDDEN, error))?,
        // Replying even without a server lets the scraper record that the server is down.
        Err(failure) => metrics::down(&failure.text),
    };
    Ok(respond::with(StatusCode::OK, metrics::CONTENT_TYPE, respond::NOTHING, text))
}
