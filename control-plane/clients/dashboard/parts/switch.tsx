import { useAction } from './loading.tsx';

/** A button that disables or enables something that can be undone. */
export function Switch(props: {
  enabled: boolean;
  name: string;
  change: (enabled: boolean, headline: string) => Promise<unknown>;
  /** True beside the heading of a page. */
  isLarge?: boolean;
}) {
  const { busy, run, problem } = useAction();
  const { enabled, name, change, isLarge = false } = props;
  const verb = enabled ? 'Disable' : 'Enable';
  return (
    <>
      <button
        type="button"
        class={isLarge ? '' : 'small'}
        aria-disabled={busy}
        aria-label={`${verb} ${name}`}
        onClick={({ detail: clicks }) => {
          // The second click of a double click must not undo the first.
          if (clicks < 2) void run(() => change(!enabled, `${verb}d ${name}`));
        }}
      >
        {busy ? `${verb.slice(0, -1)}ing…` : verb}
      </button>
      {problem}
    </>
  );
}
