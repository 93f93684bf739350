#[bireme::remote(cpu = 2)]
fn misspelt() {}

#[bireme::remote(cpus = -1)]
fn negative() {}

#[bireme::remote(returns = 3)]
fn pair() -> (u8, u8) {
    (1, 2)
}

#[bireme::remote(max_calls = 0)]
fn never() {}

#[bireme::remote(strategy = "spread")]
fn nowhere() {}

#[bireme::remote(crate = "not a crate")]
fn nameless() {}

fn main() {}
