//! Who changed what.

use crate::id::{Id, kind};
use crate::{AccountId, Invalid, SessionId, Timestamp, TokenId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;

/// Identifies an entry of the audit log.
pub type AuditId = Id<kind::Audit>;

macro_rules! actions {
    ($($name:ident = $text:literal: $about:literal;)*) => {
        /// What was done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action { $(#[doc = $about] $name,)* }

        impl Action {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The same as a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => $about,)* }
            }
        }
    };
}
actions! {
    CreateKey = "key.create": "A key was made.";
    UpdateKey = "key.update": "A key was changed.";
    EnableKey = "key.enable": "A key was switched on.";
    DisableKey = "key.disable": "A key was switched off.";
    RotateKey = "key.rotate": "A key got a new secret.";
    DeleteKey = "key.delete": "A key was deleted.";
    CreateWorkspace = "workspace.create": "A workspace was made.";
    UpdateWorkspace = "workspace.update": "A workspace was changed.";
    DeleteWorkspace = "workspace.delete": "A workspace was deleted.";
    CreateProvider = "provider.create": "A provider was added.";
    UpdateProvider = "provider.update": "A provider was changed.";
    DeleteProvider = "provider.delete": "A provider was removed.";
    CreateProject = "project.create": "A project was created.";
    DeleteProject = "project.delete": "A project was deleted.";
    ScaleProject = "project.scale": "The number of a project's instances was changed.";
    ResizeProject = "project.plan": "A project got another plan.";
    SwitchProject = "project.switch": "A setting of a project was turned on or off.";
    RestartProject = "project.restart": "A project was restarted.";
    OpenShell = "project.shell": "A shell was opened in a project.";
    MoveProject = "project.move": "A project came from another owner.";
    CreateRelease = "release.create": "A release was made.";
    RollbackRelease = "release.rollback": "A project was rolled back to an earlier release.";
    CancelRelease = "release.cancel": "A release was canceled.";
    UpdateEnvs = "env.update": "Environment variables were changed.";
    CreateDomain = "domain.create": "A domain was added.";
    DeleteDomain = "domain.delete": "A domain was removed.";
    CreateDisk = "disk.create": "A disk was made.";
    ResizeDisk = "disk.resize": "A disk was made larger.";
    DeleteDisk = "disk.delete": "A disk was deleted.";
    CreateNetwork = "network.create": "A network was made.";
    DeleteNetwork = "network.delete": "A network was deleted.";
    CreateTeam = "team.create": "A team was made.";
    DeleteTeam = "team.delete": "A team was deleted.";
    JoinTeam = "member.join": "Somebody joined the team.";
    SetRole = "member.role": "A member got another role.";
    DeleteMember = "member.remove": "A member left or was removed.";
    CreateInvitation = "invitation.create": "Somebody was invited.";
    DeleteInvitation = "invitation.delete": "An invitation was withdrawn.";
    CreateToken = "token.create": "A token was created.";
    DeleteToken = "token.revoke": "A token was revoked.";
    ApproveLogin = "token.approve": "A login of the command line was approved.";
    DenyLogin = "token.deny": "A login of the command line was denied.";
    SignIn = "session.sign_in": "Somebody signed in.";
    RefuseSignIn = "session.refuse": "A sign-in was refused.";
    SignOut = "session.sign_out": "Somebody signed out.";
    RevokeSession = "session.revoke": "A session was ended.";
    CreateAccount = "account.create": "An account was created.";
    DisableAccount = "account.disable": "An account was locked out.";
    EnableAccount = "account.enable": "An account was let in again.";
    RenameAccount = "account.rename": "An account got another name.";
    SetPassword = "account.password": "A password was set.";
    CreateResetLink = "account.reset_link": "A link to set a new password was made.";
    EnableSecondFactor = "account.second_factor_on": "A second factor was added.";
    DisableSecondFactor = "account.second_factor_off": "The second factor was removed.";
    ReplaceRecoveryCodes = "account.recovery_codes": "New recovery codes were made.";
}

impl Action {
    /// What it is about: the part of its name before the dot.
    pub fn kind(self) -> &'static str {
        let name = self.as_str();
        name.split_once('.').map_or(name, |(kind, _)| kind)
    }
}

impl FromStr for Action {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut known = Self::ALL.iter();
        let found = known.find(|action| action.as_str() == text);
        found.copied().ok_or_else(|| "is not an action".into())
    }
}
impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The actions that a list shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActionFilter {
    #[default]
    All,
    /// What the AI API does: keys, workspaces and providers.
    Ai,
    /// Every action of this kind.
    Kind(&'static str),
    Only(Action),
}

/// The name of an action, or of a kind of them.
impl FromStr for ActionFilter {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Ok(action) = text.parse() {
            return Ok(Self::Only(action));
        }
        let mut kinds = Action::ALL.iter().map(|action| action.kind());
        let found = kinds.find(|kind| *kind == text);
        found.map(Self::Kind).ok_or_else(|| {
            "is not an action, such as project.create, or a kind of actions, such as project".into()
        })
    }
}

impl<'de> Deserialize<'de> for ActionFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|Invalid(reason)| serde::de::Error::custom(reason))
    }
}

/// One change. Secrets are never part of it: changed fields are only named.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: AuditId,
    /// When.
    pub created_at: Timestamp,
    /// What was done.
    #[schema(value_type = String, example = "key.disable")]
    pub action: Action,
    /// Identifier of the key, workspace, provider, project, network, team, account, token, session or
    /// invitation. What belongs to a project, such as a release or a domain, has the project's.
    #[schema(pattern = "^[a-f0-9]{24}$")]
    pub subject: String,
    /// Its name at that time.
    pub name: String,
    /// More about it, such as the release, the host name, or the new role.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub detail: String,
    /// The fields that changed, or the environment variables; never their values.
    pub fields: Vec<String>,
    /// Who did it.
    pub by: Author,
    /// From which address.
    pub address: Option<String>,
    /// The request's id.
    #[serde(rename = "requestID")]
    pub request_id: Option<String>,
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Author {
    /// Identifier of the account; none for the command line of the server.
    pub account: Option<AccountId>,
    /// Identifier of the token that it came with, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token: Option<TokenId>,
    /// Identifier of the session of the account panel that it came with instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<SessionId>,
    /// The account's address at that time.
    pub email: String,
}
