/** Work of the one control plane that sends webhooks. */
export interface Duty {
  /** Works until the signal aborts. Never rejects. */
  run(signal: AbortSignal): Promise<void>;
}
