document.body.append("Hello from Parcel");
