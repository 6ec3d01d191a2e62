//! The domains of a project: what to set in DNS, whether it is there, and how it stands with the certificate.

use super::parts::{Problem, project_path};
use crate::form::NoFields;
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::pages::project_tabs::{ProjectTab, ProjectTabs};
use crate::{Layout, PanelError, Section, SignedForm, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::Timestamp;
use estrade_model::domain::{CreateDomain, Domain, DomainId, DomainStatus, HostName};
use estrade_model::project::ProjectDetail;
use estrade_model::team::Role;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::platform::domains::{self, CertificateStatus};
use estrade_service::platform::projects;
use serde::Deserialize;
use std::time::Duration;

/// A renewal that is due for longer than this is late.
const DAY: Duration = Duration::from_hours(24);
/// As many as a project can have.
const MAX_LISTED: u32 = 100;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route(
            "/panel/projects/{name}/domains",
            get(list_domains).post(add_domain),
        )
        .route("/panel/projects/{name}/domains/{id}", get(show_domain))
        .route(
            "/panel/projects/{name}/domains/{id}/check",
            post(check_domain),
        )
        .route(
            "/panel/projects/{name}/domains/{id}/delete",
            get(confirm_delete).post(delete_domain),
        )
}

/// How it stands with a certificate, as a word with a colour.
struct CertificateCell {
    kind: &'static str,
    text: &'static str,
    not_after: Option<Timestamp>,
    problem: Option<String>,
}

impl CertificateCell {
    fn new(
        is_active: bool,
        status: Option<&CertificateStatus>,
        has_tls: bool,
        now: Timestamp,
    ) -> Self {
        let not_after = status.and_then(|status| status.not_after);
        let problem = status.and_then(|status| status.problem.clone());
        let (kind, text) = match status {
            _ if !is_active => ("off", "After verification"),
            None if has_tls => ("off", "None of its own"),
            None => ("off", "TLS is off"),
            Some(_) if not_after.is_some_and(|end| end <= now) => ("bad", "Expired"),
            Some(_) if not_after.is_some() && problem.is_some() => ("warn", "Renewal fails"),
            Some(status) if not_after.is_some() && status.lease_until > now => {
                ("busy", "Being renewed")
            }
            Some(status) if not_after.is_some() && status.order_at.after(DAY) <= now => {
                ("warn", "Expires soon")
            }
            Some(_) if not_after.is_some() => ("ok", "Valid"),
            Some(status) if problem.is_some() && status.lease_until <= now => ("bad", "Failed"),
            Some(_) => ("busy", "Being issued"),
        };
        Self {
            kind,
            text,
            not_after,
            problem,
        }
    }
}

struct DomainRow {
    name: String,
    is_active: bool,
    checked_at: Option<Timestamp>,
    certificate: CertificateCell,
    href: String,
}

#[derive(Template)]
#[template(path = "projects/domains.html")]
struct DomainsPage {
    layout: Layout,
    tabs: ProjectTabs,
    rows: Vec<DomainRow>,
    /// The default subdomain, when it is on.
    own_host: Option<String>,
    add_href: String,
    settings_href: String,
    problem: Option<String>,
    /// What was typed.
    host: String,
}

async fn list_domains(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    render(&domains_page(&app, &visit, &name, None, String::new()).await?)
}

async fn domains_page(
    app: &AppState,
    visit: &Visit,
    name: &str,
    problem: Option<String>,
    host: String,
) -> Result<DomainsPage, PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let (detail, _) = projects::read_project(core, scope, name).await?;
    let project = &detail.project;
    let all = domains::list_domains(core, scope, Some(project.id), None, MAX_LISTED, 0).await?;
    let certificates = domains::list_certificates(core, scope, name).await?;
    let (has_tls, now) = (core.settings.edge_scheme == "https", core.now());
    let row = |domain: Domain| {
        let status = certificates
            .iter()
            .find(|it| *it.host.as_str() == domain.name);
        let is_active = domain.status == DomainStatus::Active;
        DomainRow {
            certificate: CertificateCell::new(is_active, status, has_tls, now),
            is_active,
            checked_at: domain.checked_at,
            href: visit.href(&project_path(name, &format!("/domains/{}", domain.id))),
            name: domain.name,
        }
    };
    let own_url = core.settings.project_url(&project.project_id);
    let own_host = own_url.split_once("://").map(|(_, host)| host.to_owned());
    Ok(DomainsPage {
        layout: visit.layout(
            format!("Domains of {}", project.project_id),
            Section::Projects,
        ),
        tabs: ProjectTabs::new(visit, project, ProjectTab::Domains),
        rows: all.into_iter().map(row).collect(),
        own_host: own_host.filter(|_| detail.default_subdomain),
        add_href: visit.href(&project_path(name, "/domains")),
        settings_href: visit.href(&project_path(name, "/settings")),
        problem,
        host,
    })
}

#[derive(Deserialize)]
struct AddForm {
    host: String,
}

async fn add_domain(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<AddForm>,
) -> Result<Response, PanelError> {
    let host = form.host.trim().to_owned();
    let parsed = host.parse::<HostName>();
    let made = match parsed {
        Ok(host) => {
            let new = CreateDomain {
                name: host,
                project: name.clone(),
            };
            domains::create_domain(&app.core, &visit.scope, new).await
        }
        Err(invalid) => visit
            .scope
            .require_to_read(Role::Developer)
            .and_then(|()| Err(Error::invalid(format!("Domain: {}", invalid.0)))),
    };
    match made {
        Ok(domain) => {
            let text = format!("{} was added", domain.name);
            let path = project_path(&name, &format!("/domains/{}", domain.id));
            Ok(visit.done(&text, &path))
        }
        Err(error) => {
            let problem = Problem::of(error)?;
            let page = domains_page(&app, &visit, &name, Some(problem.text), host).await?;
            render_with(problem.status, &page)
        }
    }
}

#[derive(Template)]
#[template(path = "projects/domain.html")]
struct DomainPage {
    layout: Layout,
    tabs: ProjectTabs,
    domain: Domain,
    is_active: bool,
    certificate: CertificateCell,
    /// Where it serves.
    url: String,
    domains_href: String,
    check_href: String,
    delete_href: String,
}

/// The project and one of its domains; a domain of another project is none of this page's.
async fn read(
    app: &AppState,
    visit: &Visit,
    name: &str,
    id: &str,
) -> Result<(ProjectDetail, Domain), PanelError> {
    let (core, scope) = (&app.core, &visit.scope);
    let (detail, _) = projects::read_project(core, scope, name).await?;
    let id: DomainId = id.parse().map_err(|_| Error::NotFound("the domain"))?;
    let (domain, _) = domains::read_domain(core, scope, id).await?;
    if domain.project.id != detail.project.id {
        return Err(Error::NotFound("the domain").into());
    }
    Ok((detail, domain))
}

async fn show_domain(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, PanelError> {
    let (detail, domain) = read(&app, &visit, &name, &id).await?;
    let core = &app.core;
    let certificates = domains::list_certificates(core, &visit.scope, &name).await?;
    let status = certificates
        .iter()
        .find(|it| *it.host.as_str() == domain.name);
    let has_tls = core.settings.edge_scheme == "https";
    let is_active = domain.status == DomainStatus::Active;
    let at = |rest: &str| visit.href(&project_path(&name, &format!("/domains/{id}{rest}")));
    render(&DomainPage {
        layout: visit.layout(&domain.name, Section::Projects),
        tabs: ProjectTabs::new(&visit, &detail.project, ProjectTab::Domains),
        certificate: CertificateCell::new(is_active, status, has_tls, core.now()),
        is_active,
        url: core.settings.domain_url(&domain.name),
        domains_href: visit.href(&project_path(&name, "/domains")),
        check_href: at("/check"),
        delete_href: at("/delete"),
        domain,
    })
}

async fn check_domain(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, id)): Path<(String, String)>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let (_, domain) = read(&app, &visit, &name, &id).await?;
    let domain = domains::check_domain(&app.core, &visit.scope, domain.id).await?;
    let text = match domain.status {
        DomainStatus::Active => format!("{} is verified and serves this project", domain.name),
        DomainStatus::Pending => format!("{} is not verified yet", domain.name),
    };
    let path = project_path(&name, &format!("/domains/{id}"));
    Ok(visit.done(&text, &path))
}

async fn confirm_delete(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, domain) = read(&app, &visit, &name, &id).await?;
    let page = project_path(&name, &format!("/domains/{id}"));
    let question = Question {
        title: format!("Delete {}?", domain.name),
        text: "It stops serving this project at once, and anybody who proves that it is theirs may add it. The DNS \
               records stay as they are."
            .into(),
        label: "Delete domain".into(),
        action: format!("{page}/delete"),
    };
    let tabs = ProjectTabs::new(&visit, &detail.project, ProjectTab::Domains);
    let layout = visit.layout(format!("Delete {}", domain.name), Section::Projects);
    AskPage::new(layout, question)
        .in_project(tabs)
        .below("Domains", page)
        .respond()
}

async fn delete_domain(
    State(app): State<AppState>,
    visit: Visit,
    Path((name, id)): Path<(String, String)>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (_, domain) = read(&app, &visit, &name, &id).await?;
    domains::delete_domain(&app.core, &visit.scope, domain.id, None).await?;
    let text = format!("{} was deleted", domain.name);
    Ok(visit.done(&text, &project_path(&name, "/domains")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_in_one_of_these_states() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let (past, future) = (now.before(3 * DAY), now.after(3 * DAY));
        let word = |not_after, order_at, lease_until, problem: Option<&str>| {
            let status = CertificateStatus {
                host: "shop.example.com".parse().unwrap(),
                not_after,
                order_at,
                lease_until,
                problem: problem.map(str::to_owned),
            };
            CertificateCell::new(true, Some(&status), true, now).text
        };
        let failed = Some("the CA refused");
        assert_eq!(word(None, past, future, None), "Being issued");
        assert_eq!(word(None, past, future, failed), "Being issued");
        assert_eq!(word(None, future, past, failed), "Failed");
        assert_eq!(word(Some(future), future, past, None), "Valid");
        assert_eq!(word(Some(future), now, past, None), "Valid");
        assert_eq!(word(Some(future), past, future, None), "Being renewed");
        assert_eq!(word(Some(future), past, past, None), "Expires soon");
        assert_eq!(word(Some(future), past, past, failed), "Renewal fails");
        assert_eq!(word(Some(past), past, past, failed), "Expired");
        let text = |is_active, has_tls| CertificateCell::new(is_active, None, has_tls, now).text;
        assert_eq!(text(false, true), "After verification");
        assert_eq!(text(true, true), "None of its own");
        assert_eq!(text(true, false), "TLS is off");
    }
}
