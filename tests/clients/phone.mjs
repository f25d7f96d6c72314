// A phone in a process of its own, to be killed: what tests/live/changing_member.py is for Python.
//
// Settings are on the command line, commands on its input, what its application has on its output, as JSON.

import { closeSync, existsSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";

const { client, group: name, board: path, ...options } = JSON.parse(process.argv[2]);
const { join } = await import(client);

/** Bodies in a file that is replaced with every message, before that is acknowledged: it survives a kill. */
class Board {
  bodies = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : [];

  add(message) {
    if (!this.bodies.includes(message.body)) this.replace([...this.bodies, message.body]);
    else if (!message.redelivered) throw new Error(`${message.body} comes twice`);
  }

  replace(bodies) {
    const file = openSync(`${path}.new`, "w");
    writeSync(file, JSON.stringify(bodies));
    if (options.sync !== false) fsyncSync(file);
    closeSync(file);
    renameSync(`${path}.new`, path);
    this.bodies = bodies;
  }
}

const board = new Board();
const say = (values) => process.stdout.write(`${JSON.stringify(values)}\n`);
const fail = (error) => {
  say({ failed: String(error) });
  process.exit(1);
};
let restored = 0;
const group = await join(name, {
  ...options,
  restore: (state) => {
    restored += 1;
    board.replace(JSON.parse(new TextDecoder().decode(state)));
  },
}).catch(fail);
const changes = [];

async function read() {
  for await (const message of group) {
    board.add(message);
    if (message.isRequest) await message.reply(`${message.body}!`, { headers: { by: options.me } });
  }
}

async function watch() {
  for await (const { kind, name: who, text } of group.changes()) changes.push([kind, who, text]);
}

async function obey() {
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...rest] = line.trim().split(" ");
    let result = null;
    if (command === "broadcast") result = String(await group.broadcast(rest.join(" ")));
    if (command === "move") group.move(rest[0]).catch(fail); // `look` shows when it is done
    if (command === "request") {
      const [who, ...body] = rest;
      const reply = await group.request(who, body.join(" "), { timeout: 10_000 }).catch((error) => ({ error }));
      result = reply.error ? `${reply.error.reason}: ${reply.error.message}` : reply.body;
      if (!reply.error && String(reply.replyTo) === String(reply.id)) throw new Error("a reply to itself");
    }
    if (command === "leave") {
      await group.leave();
      return say({ left: true });
    }
    if (command === "close") {
      await group.close();
      return say({ closed: true });
    }
    const { me, state, connected, superPeer } = group;
    say({
      done: line.trim(),
      result,
      bodies: board.bodies,
      waiting: group.waiting().map(({ id }) => String(id)),
      present: [...group.present].sort(),
      changes,
      restored,
      me,
      state,
      connected,
      superPeer,
    });
  }
}

say({ me: group.me, bodies: board.bodies });
read().catch(fail);
watch().catch(fail);
await obey().catch(fail);
