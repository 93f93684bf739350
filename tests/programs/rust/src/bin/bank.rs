//! Accounts as actors, transfers as tasks that call two of them: money is neither made nor lost.
// expect: 60 transfers, 4000 in all

use bireme::ObjectRef;

struct Account(i64);

#[bireme::actor]
impl Account {
    pub fn new(balance: i64) -> Self {
        Account(balance)
    }

    pub fn change(&mut self, amount: i64) -> i64 {
        self.0 += amount;
        self.0
    }
}

#[bireme::remote]
fn transfer(from: AccountHandle, to: AccountHandle, amount: i64) -> bireme::Result<()> {
    let (taken, given) = (from.change(-amount), to.change(amount));
    taken.get()?;
    given.get()?;
    Ok(())
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let accounts: Vec<AccountHandle> = (0..4).map(|_| Account::remote(1000_i64)).collect();
    let transfers: Vec<ObjectRef<()>> = (0..60_usize)
        .map(|n| transfer::remote(accounts[n % 4].clone(), accounts[(n * 7 + 1) % 4].clone(), n as i64))
        .collect();
    bireme::get_all(&transfers)?;
    let balances: Vec<_> = accounts.iter().map(|account| account.change(0_i64)).collect();
    println!("{} transfers, {} in all", transfers.len(), bireme::get_all(&balances)?.iter().sum::<i64>());
    Ok(())
}
