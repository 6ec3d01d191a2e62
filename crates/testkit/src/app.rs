//! The whole server in this process.

use crate::api_response::ApiResponse;
use crate::call::{Api, Line};
use crate::disk::Disk;
use crate::dns::DnsServer;
use crate::panel::PanelClient;
use crate::secrets::{Needles, Secrets};
use crate::user::User;
use crate::{log, wire};
use estrade_edge::EdgeOptions;
use estrade_fixtures::{Backend, Fixture, TestDatabase};
use estrade_listener::{ListenerOptions, TlsFiles};
use estrade_model::account::NewAccount;
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_runtime::EngineHost;
use estrade_server::ai::inference::InferenceOptions;
use estrade_server::app::{AppState, MetricsAccess};
use estrade_server::run::{Bind, EdgeBind, ServeOptions, Server};
use estrade_service::ai::usage::Ledger;
use estrade_service::bootstrap::{self, ADMIN, ADMIN_TOKEN_FILE, InstallationPaths};
use estrade_service::identity::tokens::TokenRequest;
use estrade_service::platform::certificates::AcmeSettings;
use estrade_service::platform::containers::usage::UsageMeter;
use estrade_service::platform::traffic::TrafficRecorder;
use estrade_service::{Core, Settings, identity::accounts, identity::tokens};
use estrade_store::Location;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How the app is set up; rate limits are off unless a test is about them.
pub struct Setup {
    /// What the services are told.
    pub settings: Settings,
    /// Requests per second and credential; 0 is without limit.
    pub requests_per_second: u32,
    /// How many of them may come at once.
    pub burst: u32,
    /// Requests per second of all credentials of an account; 0 is without limit.
    pub account_requests_per_second: u32,
    /// How many of them may come at once.
    pub account_burst: u32,
    /// Most bytes of an ordinary body.
    pub body_bytes: u64,
    /// The clients that may read the metrics.
    pub metrics: MetricsAccess,
    /// Where inference goes.
    pub inference: InferenceOptions,
    /// How deployed projects are served.
    pub edge: EdgeOptions,
    /// The certificate of the edge, which then also listens with TLS.
    pub edge_certificate: Option<TlsFiles>,
    /// From whom certificates are ordered.
    pub acme: Option<AcmeSettings>,
    /// The ports of the edge, plain and with TLS; 0: any.
    pub edge_ports: [u16; 2],
    /// Where the two APIs listen.
    pub host: IpAddr,
    /// The port of the AI API; 0: any.
    pub ai_port: u16,
}

/// The usual settings, but that the engine that this machine may have is none of a test's business.
fn without_engine() -> Settings {
    let mut settings = Settings::default();
    settings.containers.host = EngineHost::Unix("/nonexistent/docker.sock".into());
    settings
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            settings: without_engine(),
            requests_per_second: 0,
            burst: 1,
            account_requests_per_second: 0,
            account_burst: 1,
            body_bytes: 1 << 20,
            metrics: MetricsAccess::Public,
            inference: InferenceOptions {
                echo: true,
                ..InferenceOptions::default()
            },
            edge: EdgeOptions::default(),
            edge_certificate: None,
            acme: None,
            edge_ports: [0; 2],
            host: Ipv4Addr::LOCALHOST.into(),
            ai_port: 0,
        }
    }
}

impl Setup {
    /// The default but for what `change` does to it.
    pub fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut setup = Self::default();
        change(&mut setup);
        setup
    }
}

/// A running server, its directory and its database.
pub struct TestApp {
    line: Arc<Line>,
    state: AppState,
    edge: SocketAddr,
    edge_tls: Option<SocketAddr>,
    core: Arc<Core>,
    directory: TempDir,
    database: Option<TestDatabase>,
    dns: DnsServer,
    shutdown: CancellationToken,
    running: JoinSet<()>,
}

impl Fixture for TestApp {
    type Setup = Setup;

    async fn start(backend: Backend, setup: Setup) -> Self {
        Self::start_with(backend, setup).await
    }

    async fn finish(self) {
        Self::finish(self).await;
    }
}

impl TestApp {
    /// Starts a server with the usual settings.
    pub async fn start(backend: Backend) -> Self {
        Self::start_with(backend, Setup::default()).await
    }

    /// Starts a server.
    pub async fn start_with(backend: Backend, setup: Setup) -> Self {
        log::capture();
        let directory = TempDir::new().expect("a temporary directory");
        let mut paths = InstallationPaths::inside(directory.path());
        let database = match backend {
            Backend::Sqlite => None,
            Backend::Postgres => Some(TestDatabase::create().await),
        };
        if let Some(database) = &database {
            paths.database = Location::Postgres(database.url());
        }
        let dns = DnsServer::start().await;
        let mut settings = setup.settings;
        settings.domains.dns_server = Some(dns.address());
        let core = bootstrap::open(&paths, settings)
            .await
            .expect("a new installation");
        let bind = |port| Bind {
            address: SocketAddr::new(setup.host, port),
            options: ListenerOptions::default(),
            metrics: setup.metrics,
        };
        let secure = setup.acme.is_some() || setup.edge_certificate.is_some();
        let options = ServeOptions {
            platform: bind(0),
            ai: bind(setup.ai_port),
            edge: EdgeBind {
                address: ([127, 0, 0, 1], setup.edge_ports[0]).into(),
                tls_address: secure.then(|| ([127, 0, 0, 1], setup.edge_ports[1]).into()),
                options: ListenerOptions::default(),
                certificate: setup.edge_certificate,
                acme: setup.acme,
                redirect: true,
                edge: setup.edge,
                access_log: Some(directory.path().join("logs/access.log")),
            },
            requests_per_second: setup.requests_per_second,
            burst: setup.burst,
            account_requests_per_second: setup.account_requests_per_second,
            account_burst: setup.account_burst,
            body_bytes: setup.body_bytes,
            inference: setup.inference,
            temporary: directory.path().join("tmp"),
            calls: directory.path().join("calls"),
            panel: Some(estrade_panel::routes),
        };
        let shutdown = CancellationToken::new();
        let server = Server::start(Arc::clone(&core), options, shutdown.clone())
            .await
            .expect("a server");
        let line = Arc::new(Line {
            http: reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .expect("an HTTP client"),
            platform: server.platform_addr(),
            ai: server.ai_addr(),
            secrets: Secrets::default(),
        });
        let (state, edge) = (Arc::clone(server.app()), server.edge_addr());
        let edge_tls = server.edge_tls_addr();
        let mut running = JoinSet::new();
        running.spawn(server.run());
        Self {
            line,
            state,
            edge,
            edge_tls,
            core,
            directory,
            database,
            dns,
            shutdown,
            running,
        }
    }

    /// Where the edge listens.
    pub fn edge(&self) -> SocketAddr {
        self.edge
    }

    /// Where the edge listens with TLS.
    pub fn edge_tls(&self) -> SocketAddr {
        self.edge_tls.expect("an edge with TLS")
    }

    /// Takes the database away for good, as a failure would; PostgreSQL only. End with
    /// [`TestApp::abandon`].
    pub async fn lose_database(&mut self) {
        let database = self.database.take().expect("PostgreSQL");
        database.remove().await;
    }

    /// Stops the server without looking at what it left: for tests that broke something.
    pub async fn abandon(mut self) {
        self.stop().await;
        if let Some(database) = self.database {
            database.remove().await;
        }
    }

    async fn stop(&mut self) {
        self.shutdown.cancel();
        while let Some(ended) = self.running.join_next().await {
            ended.expect("the server ended well");
        }
    }

    /// Stops the server, and checks that no token that was handed out is in its log or on disk.
    pub async fn finish(mut self) {
        self.check_secrets().await;
        self.stop().await;
        // Once more: what was in memory is on disk now.
        self.check_disk(&self.line.secrets.needles());
        self.check_log();
        if let Some(database) = self.database {
            database.remove().await;
        }
    }

    /// Looks for failures of ours. With `cargo test` the tests of a process share one log, so only
    /// nextest, which gives each its own, can tell whose they are.
    fn check_log(&self) {
        let is_error = |line: &&str| line.contains(r#""level":"ERROR""#);
        let log = self.log();
        let errors: Vec<_> = log.lines().filter(is_error).collect();
        let alone = std::env::var_os("NEXTEST").is_some();
        assert!(!alone || errors.is_empty(), "{errors:#?}");
    }

    /// Looks for every token that was handed out where none may be.
    pub async fn check_secrets(&self) {
        let needles = self.line.secrets.needles();
        self.check_disk(&needles);
        let in_log = needles.found_in(self.log().as_bytes());
        assert_eq!(in_log, None, "in the log");
        let in_database = needles.found_in(self.dump().await.as_bytes());
        assert_eq!(in_database, None, "in the database");
    }

    fn check_disk(&self, needles: &Needles) {
        let disk = self.disk();
        let mut files = disk.search(needles);
        files.retain(|(path, _)| !path.ends_with(ADMIN_TOKEN_FILE));
        assert!(files.is_empty(), "on disk: {files:?}");
    }

    /// Everything that is in PostgreSQL; SQLite is on disk.
    async fn dump(&self) -> String {
        match &self.database {
            Some(database) => database.dump().await,
            None => String::new(),
        }
    }

    /// Whether a text is anywhere on disk, in the database or in the log.
    pub async fn holds(&self, text: &str) -> bool {
        let needles = Needles::new(vec![text.into(), hex::encode(text).into_bytes()]);
        needles.found_in(self.log().as_bytes()).is_some()
            || needles.found_in(self.dump().await.as_bytes()).is_some()
            || !self.disk().search(&needles).is_empty()
    }

    /// What the servers of this process have logged.
    pub fn log(&self) -> String {
        log::read()
    }

    /// The files of the data directory.
    pub fn disk(&self) -> Disk {
        Disk::read(self.directory.path())
    }

    /// The directory of contents.
    pub fn blobs(&self) -> Disk {
        Disk::read(&self.directory.path().join("blobs"))
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The SQLite file, or none.
    pub fn sqlite_file(&self) -> Option<PathBuf> {
        self.core.db.file().map(Path::to_owned)
    }

    /// The DNS server that the app asks.
    pub fn dns(&self) -> &DnsServer {
        &self.dns
    }

    /// The database, when it is PostgreSQL.
    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// What the services share: for what no request can do, such as moving the clock.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Accounts for calls, as the relay would use it.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.state.ledger
    }

    /// Measures what instances use.
    pub fn meter(&self) -> &Arc<UsageMeter> {
        &self.state.services.meter
    }

    /// Records the traffic of projects.
    pub fn traffic(&self) -> &Arc<TrafficRecorder> {
        &self.state.services.traffic
    }

    /// Writes down now which tokens and keys were used, and which sign-ins refused; a server does it every few seconds.
    pub async fn note_uses(&self) {
        let tokens = self.state.services.tokens.flush_touches().await;
        tokens.expect("uses of tokens");
        let keys = self.state.services.keys.flush_touches().await;
        keys.expect("uses of keys");
        let refusals = self.state.services.logins.flush_refusals().await;
        refusals.expect("refused sign-ins");
    }

    /// A client without an account.
    pub fn stranger(&self) -> User {
        User {
            line: Arc::clone(&self.line),
            api: Api::Platform,
            team: None,
            token: None,
            account: String::new(),
            email: String::new(),
            fullname: String::new(),
        }
    }

    /// A browser at the account panel; nobody is signed in.
    pub fn panel(&self) -> PanelClient {
        let origin = format!("http://{}", self.address(Api::Platform));
        PanelClient::new(self.stranger(), origin)
    }

    /// The administrator that the first start made, with the token from the file.
    pub async fn admin(&self) -> User {
        let file = self.directory.path().join(ADMIN_TOKEN_FILE);
        let token = std::fs::read_to_string(file).expect("the administrator's token");
        let token = token.trim().to_owned();
        self.line.secrets.remember(&token);
        let email = ADMIN.parse().expect("an address");
        let row = accounts::find_account(&self.core, &email)
            .await
            .expect("the administrator");
        User {
            token: Some(token),
            account: row.id.to_string(),
            email: row.email,
            fullname: row.fullname,
            ..self.stranger()
        }
    }

    /// A new account without a password, `name@example.com`, and a token for it.
    pub async fn new_account(&self, name: &str) -> User {
        self.account(name, None).await
    }

    /// A new account that can log in; slow, because hashing a password is.
    pub async fn new_account_with(&self, name: &str, password: &str) -> User {
        self.account(name, Some(Secret(password.to_owned()))).await
    }

    async fn account(&self, name: &str, password: Option<Secret>) -> User {
        let (email, fullname) = (format!("{name}@example.com"), format!("{name} of Example"));
        let new = NewAccount {
            email: email.parse().expect("an address"),
            fullname: fullname.parse().expect("a name"),
            password,
            admin: false,
        };
        let account = accounts::create_account(&self.core, new)
            .await
            .expect("a new account");
        let new = TokenRequest::full("test", Lifetime(None));
        let token = tokens::create_any_token(&self.core, account, new)
            .await
            .expect("a token");
        let token = token.api_token.expect("its text").expose().to_owned();
        self.line.secrets.remember(&token);
        User {
            token: Some(token),
            account: account.to_string(),
            email,
            fullname,
            ..self.stranger()
        }
    }

    /// A new team of `owner`; returns its id.
    pub async fn new_team(&self, owner: &User, name: &str) -> String {
        let new = json!({ "name": name });
        let made = owner.platform().post("/v2/teams", &new).await.assert(200);
        made.field("/_id")
    }

    /// Makes somebody a member of a team, by invitation.
    pub async fn join(&self, team: &str, owner: &User, member: &User, role: &str) {
        let invite = json!({ "email": member.email, "role": role });
        let path = format!("/v2/teams/{team}/invitations");
        let invited = owner.platform().post(&path, &invite).await.assert(200);
        let link = invited.field("/link");
        let (_, token) = link.split_once("token=").expect("a token in the link");
        let path = format!("/v2/teams/invitations/join?token={token}");
        member.platform().post_empty(&path).await.assert(200);
    }

    /// Where an API listens.
    pub fn address(&self, api: Api) -> SocketAddr {
        self.line.address(api)
    }

    /// Sends bytes as they are.
    pub async fn raw(&self, api: Api, request: impl AsRef<[u8]>) -> ApiResponse {
        wire::exchange(api, self.line.address(api), request.as_ref()).await
    }
}
