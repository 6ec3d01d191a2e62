//! Which server is meant, and with which token: option, then environment, then context.

use crate::contexts::{Context, Contexts, Credential};
use crate::error::{ClientError, Result};
use crate::keyring::{Keyring, Unusable};
use crate::url::parse_server;
use estrade_model::secret::Secret;

/// Where a server listens that nobody configured.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:3000";

/// What the command line and the environment say.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// A context by name.
    pub context: Option<String>,
    /// A server by its address.
    pub url: Option<String>,
    /// A token, from the environment.
    pub token: Option<Secret>,
}

/// A server, and how to be somebody there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub server: String,
    pub credential: Option<Credential>,
    /// Whether the token was stored for this server, rather than given with this command.
    pub is_stored: bool,
}

impl Target {
    /// The token, or what to do without one. Only one that is in the keyring needs the keyring.
    pub async fn token(
        &self,
        keyring: impl FnOnce() -> Result<Keyring, Unusable>,
    ) -> Result<Secret> {
        let entry = match &self.credential {
            Some(Credential::Token(token)) => return Ok(token.clone()),
            Some(Credential::Keyring(entry)) => entry,
            None => return Err(ClientError::NoCredential(self.server.clone())),
        };
        let read = match keyring() {
            Ok(keyring) => keyring.read(entry).await,
            Err(unusable) => Err(unusable),
        };
        let lost = |reason: String| ClientError::LostCredential {
            server: self.server.clone(),
            reason,
        };
        match read {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(lost("does not have it any more".to_owned())),
            Err(unusable) => Err(lost(unusable.to_string())),
        }
    }
}

/// Decides. The token of a context goes to the address of that context and to no other; one of the environment to the
/// address that is given with it, else to the default one, whatever context is the current one.
pub fn choose(choice: Choice, contexts: &Contexts) -> Result<Target> {
    let stored = |context: &Context| Target {
        server: context.url.clone(),
        credential: Some(context.credential.clone()),
        is_stored: true,
    };
    if let Some(name) = &choice.context {
        return contexts.find(name).map(stored);
    }
    if let Some(token) = choice.token {
        return Ok(Target {
            server: parse_server(choice.url.as_deref().unwrap_or(DEFAULT_SERVER))?,
            credential: Some(Credential::Token(token)),
            is_stored: false,
        });
    }
    let current = contexts.current().map(|(_, context)| context);
    let anonymous = |server: String| Target {
        server,
        credential: None,
        is_stored: false,
    };
    if let Some(url) = &choice.url {
        let server = parse_server(url)?;
        let mut known = current.into_iter().chain(contexts.contexts.values());
        let known = known.find(|context| context.url == server);
        return Ok(known.map_or_else(|| anonymous(server), stored));
    }
    Ok(current.map_or_else(|| anonymous(DEFAULT_SERVER.to_owned()), stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let mut contexts = Contexts::default();
        for name in ["a", "b"] {
            let context = Context {
                url: format!("https://{name}.example"),
                email: String::new(),
                credential: Credential::Token(Secret(format!("token-{name}"))),
            };
            contexts.add(name, context);
        }
        contexts
    }

    fn chosen(context: Option<&str>, url: Option<&str>, token: Option<&str>) -> (String, String) {
        let choice = Choice {
            context: context.map(str::to_owned),
            url: url.map(str::to_owned),
            token: token.map(|token| Secret(token.to_owned())),
        };
        let target = choose(choice, &contexts()).unwrap();
        let token = match target.credential {
            Some(Credential::Token(token)) => token.0,
            _ => String::new(),
        };
        (target.server, token)
    }

    #[test]
    fn a_stored_token_goes_to_its_own_server_only() {
        let is = |server: &str, token: &str| (server.to_owned(), token.to_owned());
        assert_eq!(chosen(None, None, None), is("https://b.example", "token-b"));
        assert_eq!(
            chosen(Some("a"), None, Some("env")),
            is("https://a.example", "token-a")
        );
        assert_eq!(
            chosen(None, Some("https://a.example/"), None),
            is("https://a.example", "token-a")
        );
        assert_eq!(
            chosen(None, Some("https://evil.example"), None),
            is("https://evil.example", "")
        );
        assert_eq!(
            chosen(None, Some("http://a.example"), None),
            is("http://a.example", "")
        );
        assert_eq!(
            chosen(None, Some("https://c.example"), Some("env")),
            is("https://c.example", "env")
        );
        assert_eq!(chosen(None, None, Some("env")), is(DEFAULT_SERVER, "env"));
        let nobody = choose(Choice::default(), &Contexts::default()).unwrap();
        assert_eq!(nobody.server, DEFAULT_SERVER);
        assert_eq!(nobody.credential, None);
    }

    #[tokio::test]
    async fn the_keyring_is_asked_only_for_what_is_in_it() {
        let target = |credential| Target {
            server: DEFAULT_SERVER.to_owned(),
            credential,
            is_stored: true,
        };
        let unused = || panic!("the keyring is not needed");
        let token = Credential::Token(Secret("t".to_owned()));
        let token = target(Some(token)).token(unused).await.unwrap();
        assert_eq!(token.expose(), "t");
        let none = target(None).token(unused).await.unwrap_err();
        assert!(matches!(none, ClientError::NoCredential(_)));
        let off = || Keyring::locate(|name| (name == "ESTRADE_KEYRING").then(|| "off".into()));
        let elsewhere = target(Some(Credential::Keyring("0a".to_owned())));
        let lost = elsewhere.token(off).await.unwrap_err();
        assert!(matches!(lost, ClientError::LostCredential { .. }));
        assert_eq!(
            lost.to_string(),
            "the token for http://127.0.0.1:3000 is in the keyring, and that is turned off by ESTRADE_KEYRING=off"
        );
    }
}
