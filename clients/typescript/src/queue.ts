/** Values for one listener, which may be late or absent: beyond a limit the oldest are dropped. */

const MAX_WAITING = 1_000;

export class Subscription<T> implements AsyncIterableIterator<T> {
  private readonly values: T[] = [];
  private wake: (() => void) | null = null;
  private isEnded = false;

  constructor(private readonly onEnd: (self: Subscription<T>) => void) {}

  put(value: T): void {
    this.values.push(value);
    if (this.values.length > MAX_WAITING) this.values.shift();
    this.wake?.();
  }

  end(): void {
    this.isEnded = true;
    this.wake?.();
  }

  async next(): Promise<IteratorResult<T>> {
    while (!this.values.length) {
      if (this.isEnded) return { done: true, value: undefined };
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    return { done: false, value: this.values.shift()! };
  }

  return(): Promise<IteratorResult<T>> {
    this.values.length = 0;
    this.end();
    this.onEnd(this);
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
