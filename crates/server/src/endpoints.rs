//! The endpoints of an API: served from the start, described on the first request for the document.
//!
//! Building a document runs the description of every type of the API and takes megabytes of memory, so
//! it is built on demand.

use crate::app::AppState;
use axum::Router;
use axum::routing::MethodRouter;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

/// The endpoints of one path.
pub(crate) struct Endpoints {
    pub(crate) path: String,
    pub(crate) serve: MethodRouter<AppState>,
    pub(crate) describe: fn() -> UtoipaMethodRouter<AppState>,
}

impl Endpoints {
    /// The same endpoints with something around them.
    pub(crate) fn wrapped(
        mut self,
        wrap: impl FnOnce(MethodRouter<AppState>) -> MethodRouter<AppState>,
    ) -> Self {
        self.serve = wrap(self.serve);
        self
    }
}

/// [`Endpoints`] from the handlers of one path.
///
/// The inner rules of `routes!` name what `#[utoipa::path]` made of a handler.
macro_rules! endpoints {
    ($first:path $(, $more:path)* $(,)?) => {
        utoipa_axum::paste! {{
            use utoipa_axum::PathItemExt as _;
            let serve = axum::routing::MethodRouter::new();
            let serve = $crate::endpoints::endpoints!(@on serve $first);
            $( let serve = $crate::endpoints::endpoints!(@on serve $more); )*
            $crate::endpoints::Endpoints {
                path: utoipa_axum::routes!(@path [path()] of $first),
                serve,
                describe: || utoipa_axum::routes!($first $(, $more)*),
            }
        }}
    };
    (@on $serve:ident $handler:path) => {
        utoipa_axum::paste! {
            utoipa_axum::routes!(@path [methods()] of $handler)
                .iter()
                .fold($serve, |serve, method| serve.on(method.to_method_filter(), $handler))
        }
    };
}
pub(crate) use endpoints;

/// A router that serves them.
pub(crate) fn serve(all: Vec<Endpoints>) -> Router<AppState> {
    all.into_iter().fold(Router::new(), |router, one| {
        router.route(&one.path, one.serve)
    })
}

/// The document that describes them.
pub(crate) fn describe(all: &[Endpoints]) -> OpenApi {
    let add = |router: OpenApiRouter<AppState>, one: &Endpoints| router.routes((one.describe)());
    all.iter().fold(OpenApiRouter::new(), add).into_openapi()
}
