//! The hyper service: handles what the fast path does not support (HTTP/2, TLS, bodies), with the same responses.

use crate::edge::{MatchedProject, Reply};
use crate::serving::forward_hyper;
use crate::serving::hyper_body::{ResponseBody, into_response};
use crate::serving::hyper_request::{UNKNOWN_PEER, names_one_host, read_request};
use crate::serving::logged_body::LogOnDrop;
use crate::serving::worker::Worker;
use crate::static_files::error_pages::Page;
use crate::static_files::request::Method;
use estrade_listener::peer::PeerAddr;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) struct HyperService(pub(crate) Arc<Worker>);

impl Service<Request<Incoming>> for HyperService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let worker = Arc::clone(&self.0);
        Box::pin(async move { Ok(respond(&worker, request).await) })
    }
}

async fn respond(worker: &Arc<Worker>, request: Request<Incoming>) -> Response<ResponseBody> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let now = worker.edge.now();
    let client = parts
        .extensions
        .get::<PeerAddr>()
        .map_or(UNKNOWN_PEER, |it| it.0);
    let request = read_request(&parts, worker.options.tls.is_some());
    let (reply, matched) = if names_one_host(&parts.headers) {
        worker.edge.respond(&request, now).await
    } else {
        (
            Reply::Local(Page::BadRequest.response()),
            MatchedProject::None,
        )
    };
    let response = match reply {
        Reply::Local(response) => response,
        Reply::Forward(target) => {
            let log = LogOnDrop {
                worker: Arc::clone(worker),
                route: Arc::clone(&target.route),
                client,
                started,
                status: None,
                bytes: 0,
                parts,
            };
            // Boxed: keeps the future of requests for static files small.
            return Box::pin(forward_hyper::respond(worker, log, body, target)).await;
        }
    };
    let length = if request.method == Method::Head {
        0
    } else {
        response.body.length()
    };
    let (project, client) = (matched.project(), client.to_string());
    let outcome = (response.status, length);
    worker.log_request(
        &worker.date(now),
        now,
        &request,
        project,
        &client,
        outcome,
        started,
    );
    into_response(worker, &response, &parts.method)
}
