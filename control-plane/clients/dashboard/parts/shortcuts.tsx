import { useEffect, useState } from 'preact/hooks';
import { Dialog } from './dialogs.tsx';

/** They work on every page, wherever nothing is written. */
const SHORTCUTS = {
  '/': 'Filter this list, or find anything',
  '⌘K or Ctrl+K': 'Find anything, also while writing',
  'j, k': 'To the next row, to the one before',
  Enter: 'Open the row',
  x: 'Select the row',
  '?': 'Show these shortcuts',
};

/**
 * Listens for the shortcuts; returns a function that shows them, and the dialog while they are shown.
 * @param find opens the finder, for pages without a filter
 */
export function useShortcuts(isEnabled: boolean, find: () => void) {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    if (!isEnabled) return;
    const press = (event: KeyboardEvent) => {
      const { key, target, metaKey, ctrlKey, altKey } = event;
      const isWriting =
        target instanceof Element &&
        target.closest('input:not([type=checkbox], [type=radio]), select, textarea, dialog');
      if (isWriting || metaKey || ctrlKey || altKey) return;
      const run = { '/': () => filter(find), '?': () => setShown(true), j: next, k: previous, x: select }[
        key
      ];
      if (!run) return;
      // The field would get the letter, too.
      event.preventDefault();
      run();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [isEnabled]);
  const dialog = isShown && (
    <Dialog title="Shortcuts" onClose={() => setShown(false)}>
      <dl class="shortcuts">
        {Object.entries(SHORTCUTS).map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
  return { dialog, show: () => setShown(true) };
}

function filter(find: () => void): void {
  const fields = [...document.querySelectorAll<HTMLInputElement>('main input[type=search]')];
  const field = fields.find((each) => each.checkVisibility());
  if (!field) find();
  field?.focus();
  field?.select();
}

const ROWS = 'main table > tbody > tr:not(.below)';

/** The control of each row that is shown which opens or changes it. */
const stops = () =>
  [...document.querySelectorAll<HTMLElement>(ROWS)].flatMap((row) => {
    const stop =
      row.querySelector<HTMLElement>('td.first a') ?? row.querySelector<HTMLElement>('a, button, input');
    return stop?.checkVisibility() ? [stop] : [];
  });

const rowOf = (element: Element | null) => element?.closest(ROWS) ?? undefined;

function move(step: number): void {
  const all = stops();
  const row = rowOf(document.activeElement);
  const at = all.findIndex((stop) => row?.contains(stop));
  all.at(Math.max(0, at + step))?.focus();
}
const next = () => move(1);
const previous = () => move(-1);

const select = () => rowOf(document.activeElement)?.querySelector<HTMLInputElement>('td.box input')?.click();
