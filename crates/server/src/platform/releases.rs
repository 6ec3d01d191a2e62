//! Platform API: releases of a project.

use super::release_body::{self, Source};
use crate::app::AppState;
use crate::auth::{Scoped, query_value};
use crate::body::require_json;
use crate::conditional::ETag;
use crate::context::RequestContext;
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::idempotency;
use crate::intake::{IntakeLimits, has_body};
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use estrade_model::id::kind;
use estrade_model::release::{ReleaseBody, ReleaseCreated, ReleaseList, ReleaseState};
use estrade_model::ReleaseId;
use estrade_service::{Error, Scope, releases};
use std::time::Duration;
