//! Pages of `tokens`.

use axum::Router;
use estrade_server::app::AppState;

pub fn routes() -> Router<AppState> {
    Router::new()
}
