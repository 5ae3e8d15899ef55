"""The style sheet of the HTML report."""

# SPDX-License-Identifier: MIT

STYLE = """
:root{color-scheme:light dark;--ink:#1b1d21;--quiet:#5c6370;--paper:#fff;--card:#f6f7f9;
--rule:#dfe3e8;--code:#eceff3;--s0:#2468c2;--s1:#d0680c;--s2:#128a74;--s3:#a3aab5;--good:#12743a;
--bad:#b3261e;--unknown:#8a5a00}@media screen and
(prefers-color-scheme:dark){:root{--ink:#e8eaed;
--quiet:#a0a8b4;--paper:#14161a;--card:#1d2026;--rule:#343a44;--code:#272c34;--s0:#6ea8ff;
--s1:#f0a050;--s2:#4cc9b0;--s3:#6b7482;--good:#5fd38a;--bad:#ff8a80;--unknown:#f2c14e}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}main{max-width:1120px;margin:0 auto;padding:24px 20px 48px}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:0 0 6px}small,.quiet{color:var(--quiet);
font-weight:400}.verdict{font-size:1.2rem;font-weight:600;margin:8px 0}.good{color:var(--good)}
.bad{color:var(--bad)}.unknown{color:var(--unknown)}section{margin:16px 0}
.finding,figure{background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:14px 16px}.finding.fault{border-left:5px solid var(--bad)}
.finding.limit{border-left:5px solid var(--unknown)}.finding p{margin:6px 0}.tag{font-size:.75rem;
text-transform:uppercase;letter-spacing:.05em;color:var(--quiet);margin-right:4px}
.share{display:flex;flex-wrap:wrap;align-items:center;gap:10px;color:var(--quiet)}
.meter{display:inline-block;width:140px;height:8px;background:var(--rule);border-radius:4px;
overflow:hidden}.meter span{display:block;height:100%;background:var(--s0)}
pre{background:var(--code);padding:10px 12px;border-radius:6px;margin:6px 0;white-space:pre-wrap;
overflow-wrap:anywhere}pre,code{font:14px/1.45 ui-monospace,monospace}ul{margin:6px 0;
padding-left:20px}code{overflow-wrap:anywhere}table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:baseline;padding:3px 14px 3px 0;font-weight:400}
tr{border-bottom:1px solid var(--rule)}th,td:nth-child(2){white-space:nowrap;width:1%}
td:nth-child(3){overflow-wrap:anywhere}.columns th,.columns td{white-space:normal;
width:auto}.columns th{color:var(--quiet);vertical-align:bottom}
td.good,td.bad,td.unknown{font-weight:600}
.findings{display:grid;align-items:start;
grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:12px}
.findings section{margin:0}figure{margin:0;
min-width:0}figcaption{font-weight:600;margin-bottom:4px}svg{display:block;width:100%;height:auto;
font:12px system-ui,sans-serif}.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 4px;
font-size:.85rem;color:var(--quiet)}.legend i{display:inline-block;width:12px;height:12px;
border-radius:3px;margin-right:6px;vertical-align:-1px}.grid{stroke:var(--rule);stroke-width:1}
.tick,.label{fill:var(--quiet)}.line{fill:none;
stroke-width:2;stroke-linejoin:round}.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}
.line.s2{stroke:var(--s2)}.line.s3{stroke:var(--s3)}.timeline .line{stroke-width:1.4}
.axis{stroke:var(--quiet)}.title{fill:var(--ink);font-weight:600}.band{fill:var(--ink)}
.band.b0{fill-opacity:.03}.band.b1{fill-opacity:.075}footer{margin-top:20px;font-size:.85rem}
.s0{fill:var(--s0);background:var(--s0)}
.s1{fill:var(--s1);background:var(--s1)}.s2{fill:var(--s2);background:var(--s2)}.s3{fill:var(--s3);
background:var(--s3)}.line.s0,.line.s1,.line.s2,.line.s3{fill:none;background:none}
@media(max-width:520px){main{padding:16px 12px 32px}.finding,figure{padding:12px}tr{display:grid;
grid-template-columns:1fr auto}td:nth-child(2){padding-right:0;width:auto}
td:nth-child(3){grid-column:1/-1;padding:0 0 6px}}
@page{size:A4;margin:11mm}@media print{*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
:root{font-size:9pt}body{font-size:9pt;line-height:1.3}main{max-width:none;padding:0}h1{font-size:13pt}
h2{font-size:10pt;margin:0 0 2px}.verdict{font-size:11pt;margin:4px 0}section{margin:7px 0}
table{font-size:8pt;line-height:1.2}th,td{padding:1px 10px 1px 0}
.finding,figure{padding:6px 9px;border-radius:4px}
.finding p{margin:2px 0}.findings{grid-template-columns:1fr 1fr;gap:6px}
.finding pre,.finding ul{margin:2px 0}pre,code{font-size:8pt;line-height:1.25}pre{padding:4px 8px}
section,figure,tr,.finding,.legend,footer{break-inside:avoid}h2,figcaption{break-after:avoid}
.finding:nth-child(n+3) ul,.finding:nth-child(n+5)>:not(h2):not(h2+p){display:none}
.pictures{break-before:page}svg.timeline{width:78%;margin:0 auto}
figure p,.columns,.columns+p{font-size:7pt;margin:2px 0}.columns th,.columns td{padding:0 6px 0 0}
footer{margin-top:8px}}
"""
