//! The login of the command line through a browser (RFC 8628, device authorization grant).
//!
//! A client begins a login and gets two codes: it keeps the device code, and shows the user code to its person, who
//! types it at the panel ([`approval`]) and approves. The client polls with the device code meanwhile, and the poll after
//! the approval makes the token ([`redemption`]). Invariants:
//!
//! - Nothing that opens an account is stored: codes are hashed, and there is no token before it is handed over.
//! - The device code is used up in the transaction that makes the token, so that two polls get one token.
//! - What an approval rests on is checked again then: the account is not locked out, and the session that approved
//!   has not ended. A new password, locking out and letting in again, and ending other sessions take approvals back that
//!   were not redeemed (the session that does so is kept, and may be the one that approved); so does the person.
//! - Between the two are minutes at most: who lured somebody into approving must not wait until nobody looks.
//! - Anybody may begin a login, so that their number is bounded, for each network and for all of them.

pub mod approval;
pub mod redemption;

use crate::identity::sessions::Client;
use crate::{Core, Error, Result, random};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::device_login::{StartDeviceLogin, UserCode};
use estrade_model::secret::Secret;
use estrade_store::device_codes::{self, NewDeviceCode, OpenCodes};
use estrade_store::{StoreError, Tx};
use std::net::IpAddr;
use std::time::Duration;

/// How long a login waits for its person.
pub const LIFETIME: Duration = Duration::from_mins(10);
/// How long an approved login waits for its client, which polls once a minute at least and waits 15 s for an answer.
const REDEMPTION_LIFETIME: Duration = Duration::from_mins(2);
/// How long a client is told to wait between two polls.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Most logins that wait, and most of one network.
const MAX_CODES: u64 = 5000;
const MAX_NETWORK_CODES: u64 = 20;
/// Most of all networks of a site: who has one has thousands of networks.
const MAX_SITE_CODES: u64 = 200;
/// From so many on a network has fewer, so that a flood from some leaves room for the others.
const CROWDED_CODES: u64 = MAX_CODES / 2;
const MAX_NETWORK_CODES_WHEN_CROWDED: u64 = 3;
const MAX_SITE_CODES_WHEN_CROWDED: u64 = 30;
/// When to come back when there are too many.
const RETRY_DELAY: Duration = Duration::from_mins(1);
/// Bytes of a device code.
const SECRET_BYTES: usize = 32;
/// A device code in base 64, without padding.
const SECRET_CHARS: usize = (SECRET_BYTES * 4).div_ceil(3);
/// How often another user code is drawn when one is taken.
const MAX_DRAWS: u32 = 5;
/// How much is kept of what a client calls itself, in characters.
const MAX_PROGRAM_CHARS: usize = 40;

/// A login right after it was begun.
#[derive(Debug)]
pub struct StartedLogin {
    pub device_code: Secret,
    pub user_code: UserCode,
}

/// Begins a login; 429 when too many wait.
pub async fn start(core: &Core, new: StartDeviceLogin, client: &Client) -> Result<StartedLogin> {
    let Networks { network, site } = Networks::of(client.address);
    require_room(device_codes::read_count(&core.db, &network, &site).await?)?;
    for _ in 0..MAX_DRAWS {
        let secret = URL_SAFE_NO_PAD.encode(random::bytes::<SECRET_BYTES>()?);
        let Some(user_code) = UserCode::from_random(random::bytes()?) else {
            continue;
        };
        let now = core.now();
        let row = NewDeviceCode {
            id: core.new_id()?,
            device_hash: hash_device_code(&secret),
            user_hash: hash_user_code(&user_code),
            host: new.host.as_str().to_owned(),
            user_agent: program_name(&client.user_agent),
            address: client.address.to_canonical().to_string(),
            network: network.clone(),
            scope: new.scope,
            created_at: now,
            expires_at: now.after(LIFETIME),
        };
        let site = site.clone();
        let inserted = core.db.transact(move |tx| {
            let (row, site) = (row.clone(), site.clone());
            Box::pin(async move { insert(tx, &row, &site).await })
        });
        if inserted.await? {
            return Ok(StartedLogin {
                device_code: Secret(secret),
                user_code,
            });
        }
    }
    Err(Error::internal("no free user code was found"))
}

/// Refuses (429) a login that is too much.
fn require_room(open: OpenCodes) -> Result<()> {
    let (of_network, of_site) = if open.all >= CROWDED_CODES {
        (MAX_NETWORK_CODES_WHEN_CROWDED, MAX_SITE_CODES_WHEN_CROWDED)
    } else {
        (MAX_NETWORK_CODES, MAX_SITE_CODES)
    };
    if open.all >= MAX_CODES || open.of_network >= of_network || open.of_site >= of_site {
        return Err(Error::RateLimited(RETRY_DELAY));
    }
    Ok(())
}

/// Inserts a login; false when its user code is taken.
async fn insert(tx: &mut Tx, row: &NewDeviceCode, site: &str) -> Result<bool> {
    require_room(device_codes::count_codes(tx, &row.network, site).await?)?;
    if device_codes::is_user_code_taken(tx, row.user_hash).await? {
        return Ok(false);
    }
    match device_codes::insert_code(tx, row).await {
        // Another node drew the same one in the same moment.
        Err(StoreError::Duplicate) => Err(Error::RateLimited(Duration::from_secs(1))),
        other => Ok(other.map(|()| true)?),
    }
}

/// Where logins are begun, as they are counted: the network of one client, and what one customer of a provider has of
/// them, by which its name begins.
struct Networks {
    /// A /64 of IPv6, an address of IPv4.
    network: String,
    /// A /48, or a /24.
    site: String,
}

impl Networks {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self {
                network: format!("6:{:016x}", v6.to_bits() >> 64),
                site: format!("6:{:012x}", v6.to_bits() >> 80),
            },
            IpAddr::V4(v4) => Self {
                network: format!("4:{:08x}", v4.to_bits()),
                site: format!("4:{:06x}", v4.to_bits() >> 8),
            },
        }
    }
}

/// What the token of a machine is called.
fn token_name(host: &str) -> String {
    if host.is_empty() {
        "estrade login".to_owned()
    } else {
        format!("estrade login on {host}")
    }
}

fn hash_device_code(code: &str) -> [u8; 32] {
    blake3::derive_key("estrade device code", code.as_bytes())
}

fn hash_user_code(code: &UserCode) -> [u8; 32] {
    blake3::derive_key("estrade user code", code.as_bytes())
}

/// What is kept of what a client calls itself, such as `estrade/1.0`: one word without anything that steers text. Whoever
/// begins a login would else write a message to its person, on our page.
fn program_name(user_agent: &str) -> String {
    let word = user_agent.split_whitespace().next().unwrap_or_default();
    let is_shown = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-');
    word.chars()
        .filter(is_shown)
        .take(MAX_PROGRAM_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_some_networks_leaves_room_for_others() {
        let is_taken = |of_network, of_site, all| {
            let open = OpenCodes {
                of_network,
                of_site,
                all,
            };
            require_room(open).is_ok()
        };
        assert!(is_taken(0, 0, 0) && is_taken(19, 19, 19) && !is_taken(20, 20, 20));
        assert!(is_taken(0, 199, 199) && !is_taken(0, 200, 200));
        let crowded = CROWDED_CODES;
        assert!(is_taken(19, 19, crowded - 1) && !is_taken(3, 3, crowded));
        assert!(is_taken(0, 29, crowded) && !is_taken(0, 30, crowded));
        assert!(is_taken(2, 2, MAX_CODES - 1) && !is_taken(0, 0, MAX_CODES));
    }

    #[test]
    fn networks_of_a_site_begin_with_it() {
        let networks = |text: &str| Networks::of(text.parse().unwrap());
        let home = networks("2001:db8:1:2::5");
        assert_eq!(
            (home.network.as_str(), home.site.as_str()),
            ("6:20010db800010002", "6:20010db80001")
        );
        assert_eq!(networks("2001:db8:1:2:ffff::1").network, home.network);
        let next = networks("2001:db8:1:ffff::1");
        assert!(next.network != home.network && next.site == home.site);
        assert_ne!(networks("2001:db8:2::").site, home.site);
        let old = networks("::ffff:192.0.2.7");
        assert_eq!(
            (old.network.as_str(), old.site.as_str()),
            ("4:c0000207", "4:c00002")
        );
        for counted in [home, next, old] {
            assert!(counted.network.starts_with(&counted.site));
        }
    }

    #[test]
    fn a_client_has_no_invisible_name_and_writes_no_message() {
        assert_eq!(program_name("estrade/1.0\u{202e}\u{7} (x)"), "estrade/1.0");
        assert_eq!(program_name(" Support: approve this now"), "Support");
        assert_eq!(program_name(&"x".repeat(500)).len(), MAX_PROGRAM_CHARS);
        assert_eq!(program_name(""), "");
        assert_eq!(token_name(""), "estrade login");
    }
}
