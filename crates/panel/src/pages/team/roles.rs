//! Roles as people choose them.

use estrade_model::team::Role;

/// The name on the wire, the label, and what the role may do.
pub(super) type RoleChoice = (&'static str, &'static str, &'static str);

const ROLES: [Role; 4] = [Role::Viewer, Role::Developer, Role::Admin, Role::Owner];

/// The roles that somebody with a role may give.
pub(super) fn choices(own: Role) -> Vec<RoleChoice> {
    let given = ROLES.into_iter().filter(|role| *role <= own);
    given.map(choice).collect()
}

fn choice(role: Role) -> RoleChoice {
    (role.as_str(), label(role), text(role))
}

fn label(role: Role) -> &'static str {
    match role {
        Role::Viewer => "Viewer",
        Role::Developer => "Developer",
        Role::Admin => "Admin",
        Role::Owner => "Owner",
    }
}

pub(super) fn text(role: Role) -> &'static str {
    match role {
        Role::Viewer => "reads everything but the values of variables, and changes nothing.",
        Role::Developer => "also deploys, sets variables and manages keys.",
        Role::Admin => "also manages members, deletes things and reads the audit log.",
        Role::Owner => "also deletes the team, and makes other owners.",
    }
}
