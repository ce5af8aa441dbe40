//! A way through the model, gone again and told.

use std::fmt::Write as _;

use super::state::{CLIENTS, Client, Command, Message, NODES, Node, State, World};
use super::step::{Action, apply};

/// The states from the start on; `None` if a step is not possible.
pub(crate) fn replay(world: &World, steps: &[Action]) -> Option<Vec<State>> {
    let mut states = vec![world.start()];
    for step in steps {
        states.push(apply(world, &states[states.len() - 1], *step)?);
    }
    Some(states)
}

/// A line a step, with the time in ticks before it, and who holds the lock at the end.
pub(crate) fn tell(world: &World, steps: &[Action]) -> String {
    let states = replay(world, steps).expect("steps that are possible");
    let (mut story, mut now) = (String::new(), 0);
    for (step, state) in steps.iter().zip(states.windows(2)) {
        match line(&state[0], *step, &state[1], now) {
            None => now += 1,
            Some(line) => writeln!(story, "{now:>4}  {line}").expect("memory for a line"),
        }
    }
    for client in CLIENTS.iter().filter(|client| states[steps.len()].holds(**client)) {
        let until = now + u32::from(states[steps.len()].session(*client).left);
        writeln!(story, "{now:>4}  {client:?} holds the lock, until {until}").expect("memory for a line");
    }
    story
}

/// `None` if only time goes on.
fn line(before: &State, step: Action, after: &State, now: u32) -> Option<String> {
    let name = |client: Client| after.token(client);
    Some(match step {
        Action::Tick => return None,
        Action::Acquire(client) => {
            let sent = |node: &usize| {
                let length = |state: &State| state.nodes[*node].lane(client).queue.len();
                length(before) != length(after)
            };
            let asked: Vec<String> = (0..NODES).filter(sent).map(|node| (node + 1).to_string()).collect();
            format!("{client:?} sends SET {} to nodes {}", name(client), asked.join(", "))
        }
        Action::Extend(client, _) => {
            let asked = after.nodes[0].lane(client).queue.last().map_or(0, |message| message.ttl);
            format!("{client:?} asks all nodes to renew {} for {asked}", name(client))
        }
        Action::Heal(client, node) => format!("{client:?} puts {} back on node {}", name(client), node + 1),
        Action::Decide(client) => {
            let until = now + u32::from(after.session(client).left);
            format!("{client:?} has a quorum for {}: valid until {until}", name(client))
        }
        Action::End(client) => format!("{client:?} sends the deletion of {} to all nodes", name(client)),
        Action::Run(client, node, index) => run(&before.nodes[node], client, index, &after.nodes[node], node),
        Action::Restart(node) => format!("node {} restarts without its memory", node + 1),
    })
}

fn run(before: &Node, client: Client, index: usize, after: &Node, node: usize) -> String {
    let (queue, left) = (&before.lane(client).queue, &after.lane(client).queue);
    let Message { command, token, ttl, .. } = queue[index];
    let what = match command {
        Command::Set => format!("SET {token} for {ttl}"),
        Command::Extend => format!("the renewal of {token} for {ttl}"),
        Command::Delete => format!("the deletion of {token}"),
    };
    let key = after.key.map(|key| format!("{} for {} more", key.token, key.left));
    let key = key.unwrap_or_else(|| "no key".to_owned());
    let lost = match queue.len() - left.len() - 1 {
        0 => String::new(),
        lost => format!(" ({lost} before it lost)"),
    };
    format!("node {} runs {what}{lost}, and has {key}", node + 1)
}
