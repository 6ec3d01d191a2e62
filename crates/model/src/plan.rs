//! Plans: what a project may use. Data, not code: shipped as a table, overridable in the configuration.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one plan grants. Sizes are binary (1 MB = 1,048,576 bytes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Memory in MB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// CPU cores.
    pub cpus: u64,
    /// Disk space in GB; a hard cap on what a release may hold.
    #[serde(rename = "diskGB")]
    pub disk_gb: u64,
    /// Price per hour in the smallest unit of the installation's currency; 0 on your own machine.
    #[serde(default)]
    pub hourly_price: u64,
}

impl Plan {
    /// The disk cap in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_gb.saturating_mul(1 << 30)
    }
}

/// Every plan of this installation, by `planID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans(BTreeMap<String, Plan>);

impl Default for Plans {
    fn default() -> Self {
        let table = [
            ("nano", 512, 1, 2),
            ("micro", 1024, 1, 5),
            ("standard-1x", 2048, 2, 10),
            ("standard-2x", 4096, 2, 20),
            ("performance-1x", 6144, 4, 40),
            ("performance-2x", 8192, 4, 60),
        ];
        let plan = |(id, memory_mb, cpus, disk_gb): (&str, u64, u64, u64)| {
            (
                id.to_owned(),
                Plan {
                    memory_mb,
                    cpus,
                    disk_gb,
                    hourly_price: 0,
                },
            )
        };
        Self(table.into_iter().map(plan).collect())
    }
}

impl Plans {
    /// Adds a plan, or replaces the one of that id.
    pub fn set(&mut self, id: String, plan: Plan) {
        self.0.insert(id, plan);
    }

    /// The plan of that id.
    pub fn get(&self, id: &str) -> Option<&Plan> {
        self.0.get(id)
    }

    /// The plan that a client means, with its own id: the id itself, or its alias.
    pub fn resolve(&self, id: &str) -> Option<(&str, &Plan)> {
        let entry = self.0.get_key_value(id).or_else(|| {
            let name = id.strip_suffix(ALIAS_SUFFIX)?;
            self.0.get_key_value(name)
        });
        entry.map(|(name, plan)| (name.as_str(), plan))
    }

    /// Every id that a client may name, aliases included, with its plan.
    pub fn named(&self) -> BTreeMap<String, &Plan> {
        let aliases = self.0.keys().map(|id| format!("{id}{ALIAS_SUFFIX}"));
        let ids = self.0.keys().cloned().chain(aliases);
        ids.filter_map(|id| self.resolve(&id).map(|(_, plan)| (id.clone(), plan)))
            .collect()
    }

    /// The ids, for an error message that helps.
    pub fn ids(&self) -> String {
        self.0
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Every plan by id.
    pub fn all(&self) -> &BTreeMap<String, Plan> {
        &self.0
    }
}

/// Public clients offer only plans whose id is `free` or contains `g2`, so every plan has an alias of that
/// form. Projects are stored with the plan's own id, and show that one.
const ALIAS_SUFFIX: &str = "-g2";

/// Bundle plans: levels of service that public clients know by name.
pub const BUNDLE_PLANS: [&str; 4] = ["free", "basic", "standard", "pro"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_six_plans_of_the_specification() {
        let plans = Plans::default();
        let row = |id: &str| {
            plans
                .get(id)
                .map(|plan| (plan.memory_mb, plan.cpus, plan.disk_gb))
        };
        assert_eq!(row("nano"), Some((512, 1, 2)));
        assert_eq!(row("micro"), Some((1024, 1, 5)));
        assert_eq!(row("standard-1x"), Some((2048, 2, 10)));
        assert_eq!(row("standard-2x"), Some((4096, 2, 20)));
        assert_eq!(row("performance-1x"), Some((6144, 4, 40)));
        assert_eq!(row("performance-2x"), Some((8192, 4, 60)));
        assert_eq!(plans.all().len(), 6);
    }

    #[test]
    fn an_alias_leads_to_its_plan_unless_a_plan_has_that_id() {
        let mut plans = Plans::default();
        let id = |plans: &Plans, id: &str| plans.resolve(id).map(|(id, _)| id.to_owned());
        assert_eq!(id(&plans, "nano"), Some("nano".into()));
        assert_eq!(id(&plans, "nano-g2"), Some("nano".into()));
        for unknown in ["g2", "-g2", "nano-g2-g2", "huge-g2", "NANO-g2"] {
            assert_eq!(id(&plans, unknown), None, "{unknown}");
        }
        assert_eq!(plans.named().len(), 12);
        let own = Plan {
            memory_mb: 1,
            cpus: 1,
            disk_gb: 1,
            hourly_price: 0,
        };
        plans.set("nano-g2".into(), own.clone());
        assert_eq!(plans.resolve("nano-g2"), Some(("nano-g2", &own)));
        assert_eq!(plans.named()["nano-g2"], &own);
    }
}
