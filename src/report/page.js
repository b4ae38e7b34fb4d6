// Filters and sorts the table of trials; the page is complete without it.
"use strict";
(function () {
    const table = document.querySelector("table.trials");
    if (!table) return;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const heads = Array.from(table.tHead.rows[0].cells);
    const text = rows.map((r) => r.textContent.toLowerCase());
    const value = (row, i) => {
        const cell = row.cells[i];
        return cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
    };

    const bar = document.createElement("div");
    bar.className = "filters";
    const field = (name, control) => {
        const label = document.createElement("label");
        label.append(name, control);
        bar.append(label);
        return control;
    };
    const search = field("Text in any column", document.createElement("input"));
    search.type = "search";
    search.id = "trial-filter";
    const selects = [];
    heads.forEach((head, i) => {
        if (head.dataset.filter === undefined) return;
        const values = Array.from(new Set(rows.map((r) => value(r, i))));
        if (values.length < 2) return;
        const select = document.createElement("select");
        select.append(new Option("all", "\u0000"));
        values.forEach((v) => select.append(new Option(v === "" ? "(none)" : v, v)));
        field(head.textContent.trim(), select);
        select.dataset.column = String(i);
        selects.push({ select, i });
    });
    const clear = document.createElement("button");
    clear.type = "button";
    clear.textContent = "Clear";
    bar.append(clear);
    const count = document.getElementById("trial-count");

    const apply = () => {
        const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const wanted = selects.filter((s) => s.select.value !== "\u0000");
        let shown = 0;
        rows.forEach((row, k) => {
            const keep = words.every((w) => text[k].includes(w)) &&
                wanted.every((s) => value(row, s.i) === s.select.value);
            row.hidden = !keep;
            shown += keep ? 1 : 0;
        });
        count.textContent = shown === rows.length ? rows.length + " trials"
            : shown + " of " + rows.length + " trials";
    };
    search.addEventListener("input", apply);
    selects.forEach((s) => s.select.addEventListener("change", apply));
    clear.addEventListener("click", () => {
        search.value = "";
        selects.forEach((s) => { s.select.value = "\u0000"; });
        apply();
    });

    const sort = (i) => {
        const down = heads[i].getAttribute("aria-sort") === "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
        const keyed = rows.map((row, k) => {
            const v = value(row, i);
            const number = v === "" ? NaN : Number(v);
            return { row, k, v, number };
        });
        const numeric = keyed.every((x) => x.v === "" || !Number.isNaN(x.number));
        keyed.sort((a, b) => {
            if (numeric) { // what has no number stays last, whichever way
                const an = Number.isNaN(a.number), bn = Number.isNaN(b.number);
                if (an || bn) return (an - bn) || (a.k - b.k);
                return ((a.number - b.number) * (down ? -1 : 1)) || (a.k - b.k);
            }
            return (a.v < b.v ? -1 : a.v > b.v ? 1 : 0) * (down ? -1 : 1) || (a.k - b.k);
        });
        keyed.forEach((x) => body.append(x.row));
    };
    heads.forEach((head, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => sort(i));
    });
    document.getElementById("trial-tools").append(bar);
    apply();
})();
