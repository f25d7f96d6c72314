/**
 * A phone of a live group, as its application sees it, and the driver of its core: it writes events to the
 * store, makes calls to super peers (`calls.ts`), and asks for a slot.
 */

import { randomBytes, toHex } from "./bytes.js";
import type { About, AboutAll, Body } from "./body.js";
import { Calls, now, pauseAfter, type Caller } from "./calls.js";
import { NONCE_BYTES } from "./contact.js";
import { Core, type Event } from "./core.js";
import { LocalError, StoreError } from "./errors.js";
import { Message, messageId, type Change, type MessageId, type Replying, type WaitingMessage } from "./message.js";
import type { Platform } from "./platform.js";
import { Subscription } from "./queue.js";
import { nameOf, REPLY, REQUEST, RequestError, Requests } from "./requests.js";
import { parseSuperPeers, type JoinOptions } from "./settings.js";
import { NoStore, type Store } from "./store.js";

const TICK = 200;
const ATTEMPT = 10_000;
/** How long until a requested process must be known as connected: the full list arrives with a connection. */
const FINDING = 3_000;
/** Bytes of messages that are not stable, at which `broadcast` waits. */
const LIMIT = 1 << 25;
/** The least that is appended to a store before a checkpoint replaces it. */
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

export class Group implements AsyncIterable<Message> {
  private readonly calls: Calls;
  private readonly requests = new Requests();
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
  private retained = 0;
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
    this.calls = new Calls(core, places, platform, this.caller());
  }

  private caller(): Caller {
    const isClosing = (): boolean => this.closing !== null;
    return {
      get isClosing() {
        return isClosing();
      },
      step: (event) => this.step(event),
      changed: () => this.changed(),
      fail: (error) => this.fail(error),
      tell: (kind, name, text) => this.tell(kind, name, text),
    };
  }

  async start(): Promise<void> {
    this.step({ kind: "opened", life: toHex(randomBytes(8)) });
    await this.durable();
    this.timer = setInterval(() => this.tick(), TICK);
    this.stopWatching = this.platform.watchNetwork?.(() => {
      this.calls.callAgain();
      this.wake();
    });
    await this.until(() => this.core.phase !== "leaving"); // it had asked to leave before
    if (!this.core.isStarted) {
      this.joinAgain();
      if (!(await this.until(() => this.core.isStarted, this.options.timeout))) throw new LocalError(this.describe());
    }
    this.tick();
  }

  // Presence

  /** The label by which others know this phone: a new one at each super peer. */
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
    return this.calls.superPeer;
  }

  /** Whether its super peer is connected. Broadcasts made while it is not are sent later. */
  get connected(): boolean {
    return this.calls.isConnected;
  }

  /** The names of all connected processes, as last reported by its super peer. */
  get present(): ReadonlySet<string> {
    return new Set([...this.calls.present, this.core.state.name]);
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

  /** Changes of presence and of this phone's super peer, from now on. */
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
    if (!(await this.hasRoom(options.timeout))) throw new LocalError(`${this.describe()}; nothing was broadcast`);
    return this.send(body, options);
  }

  /** Wait until broadcasting is possible; returns whether it was in time. */
  private async hasRoom(timeout?: number): Promise<boolean> {
    this.check();
    const mayBroadcast = (): boolean => this.core.isStarted && !this.isLeaving && this.retained <= LIMIT;
    return mayBroadcast() || (await this.until(mayBroadcast, timeout));
  }

  private async send(body: Body, about: AboutAll): Promise<MessageId> {
    const message = this.core.broadcast(body, Date.now(), about);
    this.retained += message.payload.length;
    const id = messageId(message, this.core.state.name);
    this.changed();
    await this.durable();
    return id;
  }

  /**
   * Send a request to a connected process, by name or label; returns the reply when it is delivered.
   * Do not wait for it in the loop that reads messages: the reply is one of those.
   */
  async request(who: string, body: Body, options: About & { timeout?: number } = {}): Promise<Message> {
    const { timeout } = options;
    const late = (): RequestError => {
      const hint = this.isHolding ? "; the application has not asked for the message after the one that it was given" : "";
      return new RequestError(who, "late", `${who} has not replied within ${timeout} ms${hint}`);
    };
    if (!(await this.hasRoom(timeout)))
      throw new RequestError(who, "late", `${this.describe()}; nothing was broadcast`);
    if (!this.present.has(nameOf(who)) && !(await this.until(() => this.present.has(nameOf(who)), FINDING)))
      throw new RequestError(who, "unknown", `${who} is not known to be in the group; nothing was broadcast`);
    return this.requests.ask(who, (reserved) => this.send(body, { ...options, reserved }), timeout, late);
  }

  private readonly replying: Replying = {
    isAsked: (message) => {
      const [, who] = message.reservedHeader(REQUEST);
      return who === this.me || who === this.core.state.name;
    },
    reply: async (message, body, options) => {
      if (!message.isRequest) throw new LocalError(`${message.id} is not a request to ${this.me}`);
      const [number] = message.reservedHeader(REQUEST);
      if (!(await this.hasRoom(options.timeout))) throw new LocalError(`${this.describe()}; nothing was broadcast`);
      return this.send(body, { ...options, reserved: { [REPLY]: `${number} ${message.id}` } });
    },
  };

  private describe(): string {
    const name = this.core.state.name;
    if (this.core.isStarted) return `${this.retained} bytes of ${name}'s messages are not known to be stable`;
    const { reasons } = this.calls;
    return `${name} has no place in the group${reasons && ` (${reasons})`}`;
  }

  /** The next messages. Asking for one acknowledges the one before, which is not redelivered. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    try {
      for (;;) {
        const message = await this.next();
        if (message === null) return;
        yield message;
      }
    } finally {
      this.isHolding = false; // an application that stopped reading does not delay a return
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
          const message = new Message(given, this.replying);
          this.requests.take(message);
          return message;
        }
        await this.signal();
      }
    } finally {
      end();
    }
  }

  /** Acknowledge the message in flight, which is not redelivered once this returns. */
  async ack(): Promise<void> {
    this.check();
    this.isHolding = false;
    if (this.core.state.attempts) this.step({ kind: "ack" });
    await this.durable();
  }

  // Moving and leaving

  /** Move to another super peer, by name. Returns when that is the super peer. */
  async move(to: string, options: { timeout?: number } = {}): Promise<void> {
    this.check();
    if (!this.places.has(to)) throw new LocalError(`${to} is not among the super peers of ${this.core.state.name}`);
    const { calls } = this;
    calls.wanted = to;
    const isDone = (): boolean => calls.superPeer === to || calls.wanted !== to;
    const inTime = await this.until(isDone, options.timeout);
    const isThere = calls.superPeer === to;
    if (calls.wanted === to) calls.wanted = null;
    if (!inTime) throw new LocalError(`${to} has not taken ${this.core.state.name} over in time; it is behind ${calls.superPeer || "no super peer"}`);
    if (!isThere) throw new LocalError(`another move was asked for before the one to ${to} was done`);
  }

  /** Leave the group: returns when the super peer has all broadcasts of this phone and has released it. */
  async leave(options: { timeout?: number } = {}): Promise<void> {
    this.check();
    this.isLeaving = true;
    const { core } = this;
    const leaving = async (): Promise<boolean> => {
      while (core.phase !== "ended") {
        const mayLeave = (): boolean => core.isStarted && !core.isMoving;
        if (mayLeave()) this.step({ kind: "leave" });
        if (!(await this.until(() => core.phase === "ended" || mayLeave(), options.timeout))) return false;
      }
      return true;
    };
    const hasLeft = await leaving();
    if (hasLeft) await this.durable();
    await this.close();
    if (!hasLeft) throw new LocalError(`${this.superPeer || "no super peer"} has not let ${this.me} go in time`);
  }

  /** Stop. With a store, this phone can resume later; others retain the messages it has not received. */
  close(): Promise<void> {
    this.closing ??= this.stop();
    return this.closing;
  }

  private async stop(): Promise<void> {
    if (this.timer !== null) clearInterval(this.timer);
    this.stopWatching?.();
    this.wake();
    this.calls.close();
    this.requests.close();
    for (const subscription of this.subscriptions) subscription.end();
    await this.durable().catch(() => undefined);
    await this.store.close();
  }

  private check(): void {
    if (this.failure !== null) throw this.failure;
    if (this.closing !== null || this.isLeaving) throw new LocalError("the group is closed");
  }

  // Events

  private step(event: Event): void {
    this.core.step(event);
    this.changed();
  }

  /** Handle an event: write it, send what may be sent, and wake all waiters. */
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

  /** Wait until a condition holds; returns whether it did in time. */
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

  /** Wait until all events so far are in the store. */
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
      await Promise.resolve(); // events of the same turn are written together
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
    const batch = core.takeBatch(isCheckpoint, (link) => this.calls.isOpenOn(link));
    if (batch.checkpoint !== null) await store.replace(batch.checkpoint);
    else if (batch.records.length) await store.append(batch.records);
    core.persisted(batch);
    this.calls.flushAll();
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

  /** Ask one super peer after the other for a slot; then hand the application the snapshot that came with it. */
  private async join(): Promise<void> {
    const { core } = this;
    const isReturn = core.state.broadcasts > 0 || core.state.phones.size > 0;
    // The message in flight is completed first: it belongs to the application's current state.
    await this.until(() => !this.isHolding);
    for (let failures = 0; core.phase !== "member"; ) {
      if (core.phase === "joining" && (await this.until(() => core.phase !== "joining", ATTEMPT))) continue;
      if (core.phase !== "outside" || core.current === null) {
        this.step({ kind: "attempt", nonce: randomBytes(NONCE_BYTES) });
        await this.durable();
      }
      const link = await this.calls.call(this.calls.nextName(), null);
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

  // Now and then

  private tick(): void {
    this.calls.tick();
    this.retained = this.core.retainedBytes;
    this.changed();
  }
}
