/**
 * A phone of a live group, as its application sees it; and the driver of its core: it writes what happens,
 * calls super peers, sends, and turns to another super peer when its own is gone.
 */

import { randomBytes, toHex } from "./bytes.js";
import type { About, Body } from "./body.js";
import { NONCE_BYTES } from "./contact.js";
import { Connection, GoneError, StaleError } from "./connection.js";
import { Core, type Event } from "./core.js";
import { LocalError, RemoteError, StoreError } from "./errors.js";
import { Message, messageId, type Change, type MessageId, type WaitingMessage } from "./message.js";
import type { Platform, Wire } from "./platform.js";
import { Subscription } from "./queue.js";
import { parseSuperPeers, type JoinOptions } from "./settings.js";
import { NoStore, type Store } from "./store.js";

const TICK = 200;
/** Ticks are more often than this, unless the process stands still, or the page is hidden. */
const LATE = 1_000;
/** How long a super peer may be out of reach before others are called. */
const PATIENCE = 2_000;
const GREETING = 10_000;
const ATTEMPT = 10_000;
const [FIRST_PAUSE, LONGEST_PAUSE] = [100, 3_000];
/** Bytes of messages that are not stable, at which `broadcast` waits. */
const LIMIT = 1 << 25;
/** What is appended to a store before a checkpoint takes its place, at least. */
const CHECKPOINT = 1 << 18;

export async function joinGroup(name: string, options: JoinOptions, platform: Platform): Promise<Group> {
  const places = parseSuperPeers(options);
  const { store } = options;
  const opened =
    typeof store === "string" ? platform.openStore(store, options.sync !== false) : (store ?? new NoStore());
  const { checkpoint, records } = await opened.open();
  let group: Group | undefined;
  try {
    const core = new Core(name, options.me, checkpoint, records);
    group = new Group(core, opened, places, options, platform);
    await group.start();
    return group;
  } catch (error) {
    await (group?.close() ?? opened.close());
    throw error;
  }
}

interface Call {
  connection: Connection;
  wire: Wire | null;
  /** The connection is over, or not made. */
  end(reason: string): void;
}

export class Group implements AsyncIterable<Message> {
  private readonly calls = new Set<Call>();
  /** When each super peer may be called again, and after how many failures in a row. */
  private readonly pauses = new Map<string, { until: number; failures: number }>();
  private readonly subscriptions = new Set<Subscription<Change>>();
  private readonly signals = new Set<() => void>();
  private waiters: { resolve: () => void; reject: (error: Error) => void }[] = [];
  private isWriting = false;
  private failure: Error | null = null;
  private closing: Promise<void> | null = null;
  private joining: Promise<void> | null = null;
  private isLeaving = false;
  /** Whether the application has a message that it has not acknowledged. */
  private isHolding = false;
  private isAgain: boolean;
  private taking: Promise<unknown> = Promise.resolve();
  private timer: ReturnType<typeof setInterval> | null = null;
  private tickedAt = now();
  private lostSince: number | null = null;
  private soughtAt = 0;
  private turn = 0;
  private retained = 0;
  private seen = new Set<string>();
  private refusals = new Map<string, string>();
  private stopWatching: (() => void) | undefined;

  /** Use `join`. */
  constructor(
    private readonly core: Core,
    private readonly store: Store,
    private readonly places: Map<string, string>,
    private readonly options: JoinOptions,
    private readonly platform: Platform,
  ) {
    this.isAgain = core.state.attempts > 0;
  }

  async start(): Promise<void> {
    this.step({ kind: "opened", life: toHex(randomBytes(8)) });
    await this.durable();
    this.timer = setInterval(() => this.tick(), TICK);
    this.stopWatching = this.platform.watchNetwork?.(() => this.callAgain());
    await this.until(() => this.core.phase !== "leaving"); // it had asked for that before
    if (!this.core.isStarted) {
      this.joinAgain();
      if (!(await this.until(() => this.core.isStarted, this.options.timeout))) throw new LocalError(this.describe());
    }
    this.tick();
  }

  // Who is there

  /** What others call this phone: another one at each super peer. */
  get me(): string {
    return this.core.label;
  }

  get state(): "open" | "returning" | "leaving" | "closed" {
    if (this.closing !== null || this.failure !== null) return "closed";
    if (this.isLeaving) return "leaving";
    return this.core.isStarted ? "open" : "returning";
  }

  /** The name of the super peer that this phone is behind; empty if there is none now. */
  get superPeer(): string {
    const link = this.hubLink;
    return link === null ? "" : this.core.state.links.get(link)!.contact.name;
  }

  /** Whether its super peer is connected. What is broadcast meanwhile is sent when it is. */
  get connected(): boolean {
    return this.hubCall !== null;
  }

  /** The names of all that are connected to the group, as its super peer said last. */
  get present(): ReadonlySet<string> {
    return new Set([...this.seen, this.core.state.name]);
  }

  /** This phone's messages that no super peer has confirmed yet. Others' never wait here: a super peer sends
   * each after what it depends on. */
  waiting(): WaitingMessage[] {
    const { state } = this.core;
    const { superPeer } = this;
    return (this.core.current?.state.retained ?? [])
      .filter(({ number, at }) => number === 0 && at > 0)
      .map(({ entry, at }) => ({ id: messageId(entry.original, state.name), since: new Date(at), superPeer }));
  }

  /** Who comes and goes, and what becomes of the connection, from now on. */
  changes(): AsyncIterableIterator<Change> {
    const subscription = new Subscription<Change>((self) => this.subscriptions.delete(self));
    this.subscriptions.add(subscription);
    return subscription;
  }

  // Messages

  /**
   * Returns when the message is accepted: from then on it is sent, once, whatever happens to this process. It
   * waits while this phone has no place in the group, for at most `timeout` milliseconds.
   */
  async broadcast(body: Body, options: About & { timeout?: number } = {}): Promise<MessageId> {
    this.check();
    const mayBroadcast = (): boolean => this.core.isStarted && !this.isLeaving && this.retained <= LIMIT;
    if (!mayBroadcast() && !(await this.until(mayBroadcast, options.timeout)))
      throw new LocalError(`${this.describe()}; nothing was broadcast`);
    const message = this.core.broadcast(body, Date.now(), options);
    this.retained += message.payload.length;
    const id = messageId(message, this.core.state.name);
    this.changed();
    await this.durable();
    return id;
  }

  private describe(): string {
    const name = this.core.state.name;
    if (this.core.isStarted) return `${this.retained} bytes of ${name}'s messages are not known to be stable`;
    const reasons = Array.from(this.refusals, ([who, reason]) => `${who}: ${reason}`);
    return `${name} has no place in the group${reasons.length ? ` (${reasons.join("; ")})` : ""}`;
  }

  /** The next messages. Asking for one acknowledges the one before: it is not given again. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    try {
      for (;;) {
        const message = await this.next();
        if (message === null) return;
        yield message;
      }
    } finally {
      this.isHolding = false; // whoever has stopped reading holds up no return
      this.changed();
    }
  }

  /** The next message; null when the group is closed. */
  async next(): Promise<Message | null> {
    const before = this.taking;
    let end!: () => void;
    this.taking = new Promise<void>((resolve) => (end = resolve));
    try {
      await before;
      for (;;) {
        if (this.failure !== null) throw this.failure;
        if (this.closing !== null) return null;
        const isAgain = this.isAgain;
        this.isHolding = this.isAgain = false;
        const given = isAgain ? this.core.takeAgain() : this.core.take();
        this.changed();
        if (given !== null) {
          this.isHolding = true;
          await this.durable();
          return new Message(given);
        }
        await this.signal();
      }
    } finally {
      end();
    }
  }

  /** The message in flight is processed, and is not given again once this returns. */
  async ack(): Promise<void> {
    this.check();
    this.isHolding = false;
    if (this.core.state.attempts) this.step({ kind: "ack" });
    await this.durable();
  }

  // Leaving

  /** Leave the group: returns when the super peer has all that was broadcast here, and has let this phone go. */
  async leave(options: { timeout?: number } = {}): Promise<void> {
    this.check();
    this.isLeaving = true;
    const { core } = this;
    const leaving = async (): Promise<boolean> => {
      while (core.phase !== "ended") {
        if (core.isStarted) this.step({ kind: "leave" });
        if (!(await this.until(() => core.phase === "ended" || core.isStarted, options.timeout))) return false;
      }
      return true;
    };
    const hasLeft = await leaving();
    if (hasLeft) await this.durable();
    await this.close();
    if (!hasLeft) throw new LocalError(`${this.superPeer || "no super peer"} has not let ${this.me} go in time`);
  }

  /** Stop here. With a store, this phone goes on from it; others retain what it has not received. */
  close(): Promise<void> {
    this.closing ??= this.stop();
    return this.closing;
  }

  private async stop(): Promise<void> {
    if (this.timer !== null) clearInterval(this.timer);
    this.stopWatching?.();
    this.wake();
    for (const call of [...this.calls]) call.end("");
    for (const subscription of this.subscriptions) subscription.end();
    await this.durable().catch(() => undefined);
    await this.store.close();
  }

  private check(): void {
    if (this.failure !== null) throw this.failure;
    if (this.closing !== null || this.isLeaving) throw new LocalError("the group is closed");
  }

  // What happens

  private step(event: Event): void {
    this.core.step(event);
    this.changed();
  }

  /** Something has happened: it is written, what may be sent is sent, and whoever waits looks again. */
  private changed(): void {
    if (!this.isWriting && this.failure === null) void this.write();
    if (this.core.phase === "removed" && this.closing === null) this.joinAgain();
    this.wake();
  }

  private wake(): void {
    for (const signal of [...this.signals]) signal();
  }

  private signal(): Promise<void> {
    return new Promise((resolve) => {
      const signal = (): void => {
        this.signals.delete(signal);
        resolve();
      };
      this.signals.add(signal);
    });
  }

  /** Wait until something is true; whether it was so in time. */
  private async until(condition: () => boolean, timeout?: number): Promise<boolean> {
    const timer = timeout === undefined ? undefined : setTimeout(() => this.wake(), timeout);
    const end = timeout === undefined ? Infinity : now() + timeout - 1;
    try {
      while (!condition()) {
        if (this.failure !== null) throw this.failure;
        if (this.closing !== null) throw new LocalError("the group is closed");
        if (now() >= end) return false;
        await this.signal();
      }
      return true;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Everything that has happened so far is in the store. */
  private durable(): Promise<void> {
    if (this.failure !== null) return Promise.reject(this.failure);
    if (!this.isWriting && !this.core.hasRecords) return Promise.resolve();
    const written = new Promise<void>((resolve, reject) => this.waiters.push({ resolve, reject }));
    if (!this.isWriting) void this.write();
    return written;
  }

  private async write(): Promise<void> {
    this.isWriting = true;
    try {
      await Promise.resolve(); // what else happens in this turn is written together
      while (this.core.hasRecords || this.waiters.length) {
        const waiters = this.waiters;
        this.waiters = [];
        try {
          await this.writeBatch();
        } catch (error) {
          this.waiters.push(...waiters);
          throw error;
        }
        for (const waiter of waiters) waiter.resolve();
      }
    } catch (error) {
      this.fail(error instanceof StoreError ? error : new StoreError(`the store cannot be written: ${String(error)}`));
    } finally {
      this.isWriting = false;
    }
  }

  private async writeBatch(): Promise<void> {
    const { core, store } = this;
    const isCheckpoint = store.size > CHECKPOINT;
    const connected = new Set([...this.calls].map((call) => call.connection.link));
    const batch = core.takeBatch(isCheckpoint, (link) => connected.has(link));
    if (batch.checkpoint !== null) await store.replace(batch.checkpoint);
    else if (batch.records.length) await store.append(batch.records);
    core.persisted(batch);
    for (const call of this.calls) this.flush(call);
  }

  private fail(error: Error): void {
    this.failure = error;
    for (const waiter of this.waiters.splice(0)) waiter.reject(error);
    void this.close().catch(() => undefined);
  }

  private tell(kind: Change["kind"], name: string, text = ""): void {
    for (const each of this.subscriptions) each.put({ kind, name, text, time: new Date() });
  }

  // Joining and returning

  private joinAgain(): void {
    this.joining ??= this.join()
      .catch((error: unknown) => {
        if (this.closing === null && this.failure === null) this.fail(error as Error);
      })
      .finally(() => (this.joining = null));
  }

  /** Ask one super peer after the other for a slot; then give the application the state that came with it. */
  private async join(): Promise<void> {
    const { core } = this;
    const isReturn = core.state.broadcasts > 0 || core.state.phones.size > 0;
    // The message in flight ends first: it belongs to what the application has now.
    await this.until(() => !this.isHolding);
    for (let failures = 0; core.phase !== "member"; ) {
      if (core.phase === "joining" && (await this.until(() => core.phase !== "joining", ATTEMPT))) continue;
      if (core.phase !== "outside" || core.current === null) {
        this.step({ kind: "attempt", nonce: randomBytes(NONCE_BYTES) });
        await this.durable();
      }
      const name = this.nextName();
      const link = await this.call(name, null);
      if (link !== null && core.phase === "outside") this.step({ kind: "asked", link });
      else if (link === null && ++failures % this.places.size === 0)
        await this.until(() => false, pauseAfter(failures / this.places.size));
    }
    if (core.isStarted) return;
    this.isAgain = false;
    const { snapshot } = core;
    if (snapshot !== null) await this.options.restore?.(snapshot.slice());
    this.step({ kind: "started" });
    await this.durable();
    if (isReturn) this.tell("returned", this.superPeer);
  }

  /** The super peers in turn, connected ones first. */
  private nextName(): string {
    const names = [...this.places.keys()];
    const connected = new Set([...this.calls].filter((call) => call.connection.isOpen).map((call) => call.connection.name));
    const first = this.turn === 0 ? names.find((name) => connected.has(name)) : undefined;
    return first ?? names[this.turn++ % names.length];
  }

  // Connections

  private get hubLink(): number | null {
    const { core } = this;
    const theirs = core.reliedOn;
    return theirs === null || core.phase === "joining" ? null : core.findLink(core.state.current!, theirs);
  }

  private get hubCall(): Call | null {
    const link = this.hubLink;
    return link === null ? null : ([...this.calls].find((call) => call.connection.link === link) ?? null);
  }

  /** Call a super peer, on a link or from the current address; the link once both have greeted, or null. */
  private async call(name: string, link: number | null): Promise<number | null> {
    const { core } = this;
    const mine = link === null ? core.state.current! : core.state.links.get(link)!.mine;
    const connection = new Connection(core, name, mine, link);
    await new Promise<void>((resolve) => {
      let isOver = false;
      const end = (reason: string): void => {
        if (isOver) return;
        isOver = true;
        clearTimeout(timer);
        this.onClosed(call, reason);
        resolve();
      };
      const timer = setTimeout(() => connection.isOpen || end("it does not answer"), GREETING);
      const call: Call = { connection, wire: null, end };
      this.calls.add(call);
      const receive = (data: Uint8Array): void => {
        if (isOver) return;
        const wasOpen = connection.isOpen;
        try {
          connection.receive(data, now());
        } catch (error) {
          return end(this.onError(call, error));
        }
        if (!wasOpen) this.onOpen(call);
        this.flush(call);
        this.changed();
        this.notePresence(call);
        if (!wasOpen) resolve();
      };
      const dial = async (): Promise<void> => {
        const url = this.places.get(name)!;
        call.wire = await this.platform.dial(url, core.state.group, name, { receive, closed: end });
        const token = await this.platform.token();
        if (isOver || this.closing !== null) call.wire.close();
        else call.wire.send(connection.greet(token));
      };
      dial().catch((error: unknown) => end((error as Error).message));
    });
    return connection.link;
  }

  private onOpen(call: Call): void {
    const { name } = call.connection;
    this.pauses.delete(name);
    this.refusals.delete(name);
    for (const other of this.calls)
      if (other !== call && other.connection.link === call.connection.link) other.end("");
    if (call.connection.link === this.hubLink) {
      this.lostSince = null;
      this.tell("connected", name);
    } else this.callAgain(); // the others may be there again, too
  }

  private onError(call: Call, error: unknown): string {
    const { connection, wire } = call;
    if (!(error instanceof RemoteError)) {
      this.fail(error as Error);
      return "";
    }
    if (error instanceof GoneError) this.onGone(connection);
    else if (!(error instanceof StaleError)) {
      if (connection.isOpen) wire?.send(connection.refuse(error.message));
      if (this.refusals.get(connection.name) !== error.message) this.tell("refused", connection.name, error.message);
    }
    return error.message;
  }

  private onGone(connection: Connection): void {
    const link = connection.calledLink;
    if (link === null) return;
    this.step({ kind: "gone", link });
    if (link === this.hubLink) this.step({ kind: "lost" });
  }

  private onClosed(call: Call, reason: string): void {
    const { connection, wire } = call;
    this.calls.delete(call);
    wire?.close();
    const { name } = connection;
    if (connection.isOpen && connection.link === this.hubLink) this.tell("disconnected", name, reason);
    if (!connection.isOpen) this.refusals.set(name, reason || "it does not answer");
    const failures = connection.isOpen ? 0 : (this.pauses.get(name)?.failures ?? 0) + 1;
    this.pauses.set(name, { until: now() + pauseAfter(failures), failures });
    this.wake();
  }

  private flush(call: Call): void {
    if (call.wire === null) return;
    for (const frame of call.connection.takeFrames(now())) call.wire.send(frame);
  }

  private notePresence(call: Call): void {
    if (call.connection.link !== this.hubLink) return;
    const here = call.connection.present;
    if (here.size === 1 && now() - call.connection.openedAt < 2 * LATE) return; // the whole list is on its way
    const come = [...here].filter((name) => !this.seen.has(name));
    const gone = [...this.seen].filter((name) => !here.has(name));
    this.seen = new Set(here);
    for (const name of gone) this.tell("went", name);
    for (const name of come) this.tell("came", name);
  }

  // Now and then

  private tick(): void {
    const time = now();
    const late = time - this.tickedAt - LATE;
    this.tickedAt = time;
    for (const call of [...this.calls]) {
      if (!call.connection.isOpen) continue;
      if (late > 0) call.connection.excuse(late);
      const reason = call.connection.tick(time);
      if (reason !== null) call.end(reason);
      else this.flush(call);
    }
    this.retained = this.core.retainedBytes;
    this.callWanted(time);
    this.failOver(time);
    this.changed();
  }

  /** Call for the links on which something is to come, or to be sent. */
  private callWanted(time: number): void {
    const { core } = this;
    for (const [link, state] of core.state.links) {
      const isReliedOn = state.mine === core.state.current && state.theirs === core.reliedOn;
      if (state.isVoid || !(isReliedOn || state.outbox.packets.size)) continue;
      const { name } = state.contact;
      const isCalled = [...this.calls].some(
        ({ connection }) => connection.link === link || (!connection.isOpen && connection.name === name),
      );
      const mayCall = this.places.has(name) && (this.pauses.get(name)?.until ?? 0) <= time;
      if (!isCalled && mayCall) void this.call(name, link);
    }
  }

  /** While its super peer is out of reach, call the others. If one of them is there for a while and its own
   * is not, give that up, and return behind another one. */
  private failOver(time: number): void {
    const { core, hubLink } = this;
    if ((core.phase !== "member" && core.phase !== "leaving") || hubLink === null || this.hubCall !== null) {
      this.lostSince = null;
      return;
    }
    this.lostSince ??= time;
    if (time - this.lostSince < PATIENCE) return;
    const here = [...this.calls].filter(({ connection }) => connection.mine === core.state.current);
    if (here.some(({ connection }) => connection.isOpen && time - connection.openedAt >= PATIENCE)) {
      this.turn = 0;
      this.step({ kind: "lost" });
    } else if (here.every(({ connection }) => connection.calledLink === hubLink) && time - this.soughtAt >= PATIENCE / 4) {
      this.soughtAt = time;
      void this.call([...this.places.keys()][this.turn++ % this.places.size], null);
    }
  }

  /** A network may be there again: no pause is kept. */
  private callAgain(): void {
    for (const pause of this.pauses.values()) pause.until = 0;
    this.callWanted(now());
    this.wake();
  }
}

const now = (): number => performance.now();

const pauseAfter = (failures: number): number =>
  Math.min(FIRST_PAUSE * 2 ** Math.min(failures, 10), LONGEST_PAUSE) * (0.5 + Math.random() / 2);
